// One set of switches for everything that is of a run.
const switches = [...document.querySelectorAll("#runs input")];
const shown = () => switches.filter((box) => box.checked).map((box) => Number(box.value));
let view = null;

function trouble(what) {
  const place = document.getElementById("trouble");
  place.textContent = what;
  place.hidden = false;
}

function redraw() {
  const on = shown();
  document.querySelectorAll("main [data-run]").forEach((part) => { part.hidden = !part.dataset.run.split(" ").some((run) => on.includes(Number(run))); });
  switches.forEach((box) => box.parentNode.classList.toggle("off", !box.checked));
  view?.show(on);
  return drawCharts(on);
}

switches.forEach((box) => box.addEventListener("change", redraw));
document.getElementById("runs").addEventListener("submit", (event) => event.preventDefault());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", redraw);
addEventListener("afterprint", redraw);
addEventListener("hashchange", () => { const part = document.querySelector(":target"); if (part?.tagName === "DETAILS") part.open = true; });

redraw()
  .then(() => unpack(document.getElementById("job-data").textContent))
  .then((data) => { view = new JobView(new JobTable(data, charts.runs.map((run) => run.name)), shown()); })
  .catch((error) => trouble(`The page could not be drawn in full (a browser of 2023 or later is needed): ${error.message}`))
  .finally(() => { document.documentElement.dataset.ready = "yes"; });
