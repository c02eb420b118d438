// The table of jobs: columns as typed arrays, one order a column (kept), a filter, and one page of rows in the document.
const PAGE = 50;
const KINDS = { i4: Int32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const NULL = -(2 ** 31);

/** Unpack what analysis/report/pack.py has packed. */
async function unpack(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const content = await new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const start = 4 + new DataView(content).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, start - 4)));
  for (const table of header.tables) for (const column of Object.values(table)) {
    const array = new KINDS[column.kind](column.rows), bytes = new Uint8Array(array.buffer), width = array.BYTES_PER_ELEMENT;
    const planes = new Uint8Array(content, start + column.at, bytes.length);
    for (let b = 0; b < width; b++) for (let i = 0, from = b * column.rows; i < column.rows; i++) bytes[i * width + b] = planes[from + i];
    column.array = array;
  }
  return header;
}

const fixed = (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
// name, heading, unit, digits of a number (none: text), what it is
const COLUMNS = [
  ["run", "policy", "", null, ""], ["job_id", "job", "", null, ""], ["state", "state", "", null, "how the job stands at the end"],
  ["jct_s", "JCT", "s", 1, "job completion time"], ["queue_s", "waited", "s", 1, "JCT less the time in which it held GPUs"],
  ["bounded_slowdown", "bounded slowdown", "", 2, "JCT / recorded run time, at least 1; run times below 10 s count as 10 s"],
  ["rho", "ρ", "", 3, "finish-time fairness: above 1, slower than with an equal share"],
  ["preemptions", "preempted", "", 0, "times that the policy put it back into the queue"], ["cost_usd", "cost", "USD", 2, "of the GPU time that it held"],
  ["gpus", "GPUs", "", 3, "asked for"], ["gpu_type", "types", "", null, "GPU types asked for; empty: any"],
  ["submit_s", "submitted", "s", 1, `since ${charts.since}`], ["user", "user", "", null, ""], ["vc", "VC", "", null, "virtual cluster"],
  ["model", "model", "", null, ""],
];
const SEARCHED = { job: "job_id", id: "job_id", user: "user", vc: "vc", model: "model", type: "gpu_type", state: "state", policy: "run" };

class JobTable {
  constructor(data, names) {
    this.names = names;
    this.traces = data.tables.slice(0, data.traces);
    this.runs = data.tables.slice(data.traces);
    this.traceOf = data.trace_of;
    this.why = data.why;
    this.starts = [0];
    this.runs.forEach((run) => this.starts.push(this.starts.at(-1) + run.row.rows));
    this.count = this.starts.at(-1);
    this.runOf = new Uint16Array(this.count);
    this.runs.forEach((run, r) => this.runOf.fill(r, this.starts[r], this.starts[r + 1]));
    this.orders = new Map();
    this.ranks = new Map();
  }

  /** Column of a run's rows, and which of its rows each of them is. */
  column(name, r) {
    const own = this.runs[r][name];
    return own ? [own, null] : [this.traces[this.traceOf[r]][name], this.runs[r].row.array];
  }

  /** Whether a column says anything: traces may have no users, or no models. */
  says(name) {
    return this.runs.some((_, r) => { const [column] = this.column(name, r); return !column.words || column.words.some(Boolean); });
  }

  /** Value of a row: a text, a number, or null where there is none. */
  value(name, row) {
    const r = this.runOf[row], i = row - this.starts[r];
    if (name === "run") return this.names[r];
    const [column, at] = this.column(name, r);
    const code = column.array[at ? at[i] : i];
    if (column.words) return column.words[code];
    if (column.kind === "i4") return code === NULL ? null : code / column.scale;
    return Number.isNaN(code) ? null : code;
  }

  /** Place of each word of a column among all words in order of their text. */
  rank(name) {
    if (!this.ranks.has(name)) {
      const lists = name === "run" ? [this.names] : (this.runs[0][name] ? this.runs : this.traces).map((table) => table[name].words);
      const all = [...new Set(lists.flat())].sort();
      const place = new Map(all.map((word, k) => [word, k]));
      this.ranks.set(name, lists.map((list) => Float64Array.from(list, (word) => place.get(word))));
    }
    return this.ranks.get(name);
  }

  /** All rows in ascending order of a column: those with a value, then how many they are. */
  order(name) {
    if (!this.orders.has(name)) {
      const keys = new Float64Array(this.count);
      for (let r = 0; r < this.runs.length; r++) {
        const start = this.starts[r], n = this.runs[r].row.rows;
        if (name === "run") { keys.fill(this.rank("run")[0][r], start, start + n); continue; }
        const [column, at] = this.column(name, r), array = column.array;
        const ranks = column.words && this.rank(name)[this.runs[0][name] ? r : this.traceOf[r]];
        const scale = column.scale ?? 1;
        for (let i = 0; i < n; i++) {
          const code = array[at ? at[i] : i];
          keys[start + i] = ranks ? ranks[code] : column.kind === "i4" && code === NULL ? NaN : code / scale;
        }
      }
      const rows = new Uint32Array(this.count);
      let known = 0, unknown = this.count;
      for (let i = 0; i < this.count; i++) if (!Number.isNaN(keys[i])) rows[known++] = i;
      for (let i = this.count - 1; i >= 0; i--) if (Number.isNaN(keys[i])) rows[--unknown] = i;
      rows.subarray(0, known).sort((a, b) => keys[a] - keys[b] || a - b);
      this.orders.set(name, [rows, known]);
    }
    return this.orders.get(name);
  }

  /** Rows that a search finds: a byte a row. Terms are parts of a text in any case; field:term looks in one column. */
  found(query) {
    const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = new Uint8Array(this.count).fill(1);
    for (const term of terms) {
      const [, field = "", rest] = term.match(/^(\w+):(.+)$/) ?? [];
      const names = Object.hasOwn(SEARCHED, field) ? [SEARCHED[field]] : [...new Set(Object.values(SEARCHED))];
      const part = Object.hasOwn(SEARCHED, field) ? rest : term;
      const lists = new Map();
      const fits = (words) => {
        if (!lists.has(words)) lists.set(words, Uint8Array.from(words, (word) => word.toLowerCase().includes(part)));
        return lists.get(words);
      };
      for (let r = 0; r < this.runs.length; r++) {
        const start = this.starts[r], n = this.runs[r].row.rows;
        const columns = names.filter((name) => name !== "run").map((name) => {
          const [column, at] = this.column(name, r);
          return [column.array, at, fits(column.words)];
        });
        if (names.includes("run") && fits(this.names)[r]) continue;
        for (let i = 0; i < n; i++) {
          let hit = 0;
          for (const [array, at, words] of columns) hit |= words[array[at ? at[i] : i]];
          if (!hit) hits[start + i] = 0;
        }
      }
    }
    return hits;
  }

  /** Rows that are shown, in order. */
  rows(on, hits, name, descending) {
    const [order, known] = this.order(name), chosen = new Uint8Array(this.runs.length);
    on.forEach((r) => { chosen[r] = 1; });
    const rows = new Uint32Array(this.count);
    let n = 0;
    const take = (row) => { if (hits[row] && chosen[this.runOf[row]]) rows[n++] = row; };
    if (descending) for (let i = known - 1; i >= 0; i--) take(order[i]);
    else for (let i = 0; i < known; i++) take(order[i]);
    for (let i = known; i < this.count; i++) take(order[i]);
    return rows.subarray(0, n);
  }
}

/** The table in the document. */
class JobView {
  constructor(table, on) {
    Object.assign(this, { table, on, sort: "jct_s", descending: true, page: 0, hits: table.found("") });
    this.body = document.querySelector("#job-table tbody");
    const head = document.querySelector("#job-table thead tr");
    this.columns = COLUMNS.filter(([name]) => name === "run" || table.says(name));
    this.heads = this.columns.map(([name, heading, unit, digits, what]) => {
      const cell = head.appendChild(document.createElement("th")), button = cell.appendChild(document.createElement("button"));
      cell.scope = "col";
      cell.className = digits === null ? "" : "number";
      button.type = "button";
      button.textContent = unit ? `${heading} (${unit})` : heading;
      button.dataset.sort = name;
      if (what) button.title = what;
      button.addEventListener("click", () => this.sortBy(name, digits !== null));
      return [name, cell];
    });
    const search = document.getElementById("search");
    search.addEventListener("input", () => { this.hits = table.found(search.value); this.page = 0; this.draw(); });
    for (const [id, to] of [["first", () => 0], ["back", () => this.page - 1], ["next", () => this.page + 1], ["last", () => this.pages - 1]]) {
      document.getElementById(`page-${id}`).addEventListener("click", () => { this.page = to(); this.draw(); });
    }
    this.draw();
  }

  sortBy(name, number) {
    this.descending = this.sort === name ? !this.descending : number;
    this.sort = name;
    this.page = 0;
    this.draw();
  }

  show(on) { this.on = on; this.page = 0; this.draw(); }

  draw() {
    const rows = this.table.rows(this.on, this.hits, this.sort, this.descending);
    this.pages = Math.max(Math.ceil(rows.length / PAGE), 1);
    this.page = Math.min(Math.max(this.page, 0), this.pages - 1);
    for (const [name, cell] of this.heads) cell.setAttribute("aria-sort", name !== this.sort ? "none" : this.descending ? "descending" : "ascending");
    this.body.replaceChildren(...Array.from(rows.subarray(this.page * PAGE, (this.page + 1) * PAGE), (row) => this.row(row)));
    const from = rows.length ? this.page * PAGE + 1 : 0, to = Math.min((this.page + 1) * PAGE, rows.length);
    const say = (n) => n.toLocaleString("en");
    document.getElementById("job-count").textContent = `${say(from)}–${say(to)} of ${say(rows.length)} rows`;
    for (const id of ["first", "back"]) document.getElementById(`page-${id}`).disabled = this.page === 0;
    for (const id of ["next", "last"]) document.getElementById(`page-${id}`).disabled = this.page >= this.pages - 1;
  }

  row(row) {
    const line = document.createElement("tr"), r = this.table.runOf[row];
    line.dataset.run = r;
    for (const [name, , , digits] of this.columns) {
      const cell = line.appendChild(document.createElement("td")), value = this.table.value(name, row);
      if (digits !== null) {
        cell.className = "number";
        cell.textContent = value === null ? "–" : name === "gpus" ? value.toLocaleString("en") : fixed(digits).format(value);
        if (value !== null && name.endsWith("_s")) cell.title = human(value);
        continue;
      }
      const why = name === "job_id" && Object.hasOwn(this.table.why[r], value) && this.table.why[r][value];
      const text = (why ? cell.appendChild(document.createElement("a")) : cell).appendChild(document.createElement("bdi"));
      if (why) Object.assign(text.parentNode, { href: `#${why}`, title: "why it took so long" });
      text.textContent = value;
      cell.title ||= value;
    }
    return line;
  }
}
