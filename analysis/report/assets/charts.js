// Charts: each is drawn anew from the data of the runs that are switched on; Plotly keeps the zoom (uirevision).
const charts = JSON.parse(document.getElementById("chart-data").textContent);

// Plotly takes text for a little HTML, and $…$ for a formula: names of policies and GPU types must stay text.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const shade = (run) => (run.colour === "#000000" ? colour("ink") : run.colour);

const SIZES = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
/** A time in words, two units at most: 42.5 s, 12 min 5 s, 3 h 20 min, 2 d 4 h. */
function human(seconds) {
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  let at = SIZES.findIndex(([, size]) => seconds >= size || size === 60);
  const whole = Math.round(seconds / SIZES[at + 1][1]) * SIZES[at + 1][1];
  if (at > 0 && whole >= SIZES[at - 1][1]) at -= 1;
  const [[name, size], [low, small]] = [SIZES[at], SIZES[at + 1]];
  return `${Math.floor(whole / size)} ${name} ${Math.floor((whole % size) / small)} ${low}`;
}
const TIMES = [[1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [86400, "1 d"], [864000, "10 d"],
  [8640000, "100 d"]];
// Waits may be 0: an axis that is linear up to about a second and logarithmic beyond.
const squeezed = (seconds) => Math.log10(1 + seconds);

const axis = (title, more = {}) => ({
  title: { text: title, standoff: 8 }, gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"),
  automargin: true, ...more,
});
const times = (title) => axis(title, { type: "log", tickvals: TIMES.map(([s]) => s), ticktext: TIMES.map(([, t]) => t) });
const layout = (more) => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), family: "system-ui, sans-serif", size: 12 },
  margin: { l: 60, r: 14, t: 34, b: 44 }, showlegend: false, hovermode: "closest", dragmode: "zoom", uirevision: "same",
  hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") }, namelength: -1, align: "left" },
  modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("ink") },
  ...more,
});
const line = (run) => ({ color: shade(run), dash: run.dash, width: 2, shape: "hv" });
const hover = (text) => `${text}<extra>%{fullData.name}</extra>`;

function cumulative(data, xaxis, value, shapes = []) {
  return (on) => [
    on.filter((i) => data[i]).map((i) => ({
      type: "scatter", mode: "lines", name: plain(charts.runs[i].name), meta: i, line: line(charts.runs[i]),
      x: xaxis === "time" ? data[i].x.map((x) => Math.max(x, 1)) : data[i].x, y: data[i].y.map((y) => 100 * y),
      text: data[i].x.map(value), hovertemplate: hover("%{y:.2f} % of finished jobs: at most %{text}"),
    })),
    layout({
      xaxis: xaxis === "time" ? times("job completion time, JCT") : axis("finish-time fairness ρ (1: an equal share)", { type: "log" }),
      yaxis: axis("finished jobs (%)", { range: [0, 101] }), shapes,
    }),
  ];
}

function boxes(data) {
  return (on) => [
    on.map((i) => {
      const found = data.runs[i].map((box, k) => [box, k]).filter(([box]) => box);
      const at = (n) => found.map(([box]) => squeezed(box.at[n]));
      return {
        type: "box", name: plain(charts.runs[i].name), meta: i, x: found.map(([, k]) => data.classes[k]),
        lowerfence: at(0), q1: at(1), median: at(2), q3: at(3), upperfence: at(4),
        line: { color: shade(charts.runs[i]), width: 1.3 }, fillcolor: shade(charts.runs[i]) + "55", hoverinfo: "skip",
      };
    }).concat(on.map((i) => {
      // A point at each mean carries the numbers: those of a box cannot be given units.
      const found = data.runs[i].map((box, k) => [box, k]).filter(([box]) => box);
      return {
        type: "box", name: plain(charts.runs[i].name), meta: i, offsetgroup: `${i}`, x: found.map(([, k]) => data.classes[k]),
        y: found.map(([box]) => squeezed(box.mean)),
        text: found.map(([box, k]) => `${data.classes[k]} GPUs, ${box.jobs.toLocaleString("en")} jobs<br>mean ${human(box.mean)}<br>` +
          box.at.map((value, n) => `p${data.percentiles[n]} ${human(value)}`).join("<br>")),
        boxpoints: "all", pointpos: 0, jitter: 0, marker: { color: shade(charts.runs[i]), size: 6, symbol: charts.runs[i].marker },
        line: { width: 0 }, fillcolor: "rgba(0,0,0,0)", hoveron: "points", hovertemplate: hover("%{text}"),
      };
    })).map((trace) => ({ ...trace, offsetgroup: `${trace.meta}`, alignmentgroup: "one" })),
    layout({
      boxmode: "group", boxgap: 0.25, boxgroupgap: 0.15,
      xaxis: axis("GPUs asked for", { type: "category", categoryorder: "array", categoryarray: data.classes }),
      yaxis: axis("queueing", { rangemode: "tozero", tickvals: [0, ...TIMES.map(([s]) => squeezed(s))],
        ticktext: ["0", ...TIMES.map(([, t]) => t)] }),
    }),
  ];
}

function overTime(data, title, unit, range) {
  const n = data.panels.length, gap = n > 1 ? 0.09 : 0;
  return (on) => {
    const shown = layout({ annotations: [{ text: title, textangle: -90, x: 0, xshift: -48, y: 0.5, xref: "paper", yref: "paper",
      xanchor: "center", yanchor: "middle", showarrow: false }] });
    shown.xaxis = axis(`time since ${charts.since} (${data.unit})`, { anchor: n > 1 ? `y${n}` : "y" });
    const traces = [];
    data.panels.forEach((panel, k) => {
      const name = k ? `yaxis${k + 1}` : "yaxis", height = (1 - gap * (n - 1)) / n, top = 1 - k * (height + gap);
      shown[name] = axis("", { automargin: false, domain: [Math.max(top - height, 0), top], rangemode: "tozero", ...range });
      shown.annotations.push({ text: plain(panel.title), x: 0, y: top, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom",
        showarrow: false, font: { size: 12 } });
      on.filter((i) => panel.runs[i]).forEach((i) => traces.push({
        type: "scatter", mode: "lines", name: plain(charts.runs[i].name), meta: i, line: line(charts.runs[i]), xaxis: "x",
        yaxis: k ? `y${k + 1}` : "y", x: panel.runs[i].x, y: panel.runs[i].y,
        hovertemplate: hover(`%{y:,.4~g}${unit} from %{x:,.6~g} ${data.unit} on<br>${plain(panel.title).replace(/%/g, "&#37;")}`),
      }));
    });
    return [traces, shown];
  };
}

function costBars(data) {
  return (on) => [
    data.types.map((type, k) => ({
      type: "bar", orientation: "h", name: plain(type), y: on.map((i) => i), x: on.map((i) => data.runs[i].usd[k] ?? 0),
      meta: type, marker: { color: shade(charts.kinds[k]), line: { color: colour("paper"), width: 1 },
        pattern: { shape: ["", "/", ".", "\\", "x", "+"][k % 6], bgcolor: shade(charts.kinds[k]), fgcolor: colour("paper"), size: 7 } },
      text: on.map((i) => (data.runs[i].usd[k] === null ? "price unknown" : `${data.runs[i].usd[k].toLocaleString("en", { maximumFractionDigits: 2 })} USD`)),
      customdata: on.map((i) => data.runs[i].gpu_hours[k]), textposition: "none",
      hovertemplate: hover("%{text}<br>%{customdata:,.2f} GPU-h held"),
    })),
    layout({
      barmode: "stack", showlegend: true, legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, traceorder: "normal" }, bargap: 0.35,
      xaxis: axis("cost of GPU time held, known prices (USD)", { rangemode: "tozero" }),
      yaxis: axis("", { tickvals: on, ticktext: on.map((i) => plain(charts.runs[i].name)), type: "category", autorange: "reversed" }),
    }),
  ];
}

function tradeOff(data) {
  return (on) => {
    const there = on.filter((i) => data[i]).sort((a, b) => data[a].jct_s - data[b].jct_s || data[a].cost_usd - data[b].cost_usd);
    const beats = (a, b) => a.cost_usd <= b.cost_usd && a.jct_s <= b.jct_s && (a.cost_usd < b.cost_usd || a.jct_s < b.jct_s);
    // A cost that is not known in full may be anything from its known part up: such a run beats nobody for sure, and perhaps all dearer ones.
    const beaten = (i) => there.some((j) => data[j].known && beats(data[j], data[i]));
    const maybe = (i) => !data[i].known || there.some((j) => !data[j].known && beats(data[j], data[i]));
    const front = there.filter((i) => !beaten(i) && !maybe(i));
    const place = (i) => (beaten(i) ? "not on the Pareto front" : maybe(i) ? "on the Pareto front or not: cannot be said" : "on the Pareto front");
    const usd = (i) => data[i].cost_usd.toLocaleString("en", { maximumFractionDigits: 2 });
    return [
      [{
        type: "scatter", mode: "lines", name: "Pareto front", x: front.map((i) => data[i].jct_s / 3600), y: front.map((i) => data[i].cost_usd),
        line: { color: colour("soft"), width: 1.3, shape: "hv", dash: "dot" }, hoverinfo: "skip",
      }].concat(there.map((i) => ({
        type: "scatter", mode: "markers+text", name: plain(charts.runs[i].name), meta: i, x: [data[i].jct_s / 3600], y: [data[i].cost_usd],
        text: [plain(charts.runs[i].name)], textposition: data[i].known ? "top center" : "bottom center", cliponaxis: false,
        marker: { color: shade(charts.runs[i]), size: 11, symbol: charts.runs[i].marker + (data[i].known ? "" : "-open") },
        hovertemplate: hover(`${data[i].known ? "" : "at least "}${usd(i)} USD<br>mean JCT %{x:,.4f} h (${human(data[i].jct_s)})<br>${place(i)}`),
      }))),
      layout({
        xaxis: axis("mean JCT of finished jobs (h)"), yaxis: axis("cost of GPU time held (USD)"),
        annotations: there.filter((i) => !data[i].known).map((i) => ({
          x: data[i].jct_s / 3600, y: data[i].cost_usd, ax: 0, ay: -26, yshift: 0, text: "", showarrow: true, arrowside: "start", arrowhead: 2,
          arrowcolor: shade(charts.runs[i]), standoff: 6,
        })),
      }),
    ];
  };
}

const vertical = () => [{ type: "line", x0: 1, x1: 1, y0: 0, y1: 1, yref: "paper", line: { color: colour("soft"), width: 1 } }];
const drawings = {
  jct: cumulative(charts.jct, "time", (x) => `${x.toLocaleString("en")} s (${human(x)})`),
  rho: (on) => cumulative(charts.rho, "ratio", (x) => `ρ = ${x.toLocaleString("en", { maximumFractionDigits: 3 })}`, vertical())(on),
  waits: boxes(charts.waits),
  cost: costBars(charts.cost),
  held: overTime(charts.held, "GPUs held (% of those in service)", " %", { range: [0, 105] }),
  queue: overTime(charts.queue, "jobs waiting", " jobs", {}),
  trade: tradeOff(charts.trade),
};
// Named one by one: Plotly's own set has a button that sends the chart to its maker.
const CONFIG = { responsive: true, displaylogo: false, plotlyServerURL: "", displayModeBar: true,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };

/** Draw every chart for the runs that are on. */
function drawCharts(on) {
  return Promise.all(Object.entries(drawings).map(([name, make]) => {
    const [traces, shown] = make(on);
    return Plotly.react(document.getElementById(`chart-${name}`), traces, shown, CONFIG);
  }));
}
