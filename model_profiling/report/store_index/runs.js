// Every run, the newest first until a column is chosen.
const RUNS_STEP = 50;
const COLUMNS = [
  ["measured", (run) => run.measured, (run) => make("span", { class: "nowrap" }, run.measured)],
  ["model", (run) => `${run.model} ${run.format}`.trim()],
  ["device", (run) => run.device],
  ["latency", (run) => run.ms, (run) => (run.ms === null ? "-" : `${milliseconds(run.ms)} ms`)],
  ["kernels", (run) => run.kernels],
  ["state", (run) => run.state],
  ["commit", (run) => run.commit, (run) => (run.commit ? make("code", { class: "nowrap" }, run.commit) : "-")],
  ["tags", (run) => run.tags, (run) => run.tags || "-"],
  ["report", (run) => (run.report ? "0" : "1"), (run) => reportOf(run)],
];

class RunTable {
  constructor(place) {
    this.count = make("p", { class: "count", role: "status" });
    this.body = make("tbody");
    this.heads = COLUMNS.map(([name], column) => make("th", { scope: "col", class: name === "latency" ? "number" : null },
      make("button", { type: "button", onclick: () => this.sort(column) }, name)));
    this.more = make("button", { type: "button", class: "more", onclick: () => this.show(this.shown) });
    place.classList.add("explorer");
    place.replaceChildren(this.count, make("div", { class: "table" }, make("table", {}, make("thead", {}, make("tr", {}, ...this.heads)), this.body)), this.more);
    addEventListener("filter", () => this.show());
  }

  sort(column) {
    this.sorted = { column, down: this.sorted?.column === column ? !this.sorted.down : false };
    this.heads.forEach((head, each) => (each === column ? head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    this.show();
  }

  ordered() {
    const runs = filters.runs();
    if (!this.sorted) return runs;
    const { column, down } = this.sorted;
    const value = COLUMNS[column][1];
    const missing = (run) => value(run) === null || value(run) === "";
    const order = (a, b) => (typeof value(a) === "number" ? value(a) - value(b) : value(a).localeCompare(value(b), "en", { numeric: true }));
    return runs.sort((a, b) => missing(a) - missing(b) || (missing(a) ? 0 : down ? order(b, a) : order(a, b)));
  }

  show(from = 0) {
    if (from === 0) {
      this.runs = this.ordered();
      this.body.replaceChildren();
    }
    this.shown = Math.min(this.runs.length, from + RUNS_STEP);
    this.body.append(...this.runs.slice(from, this.shown).map((run) => make("tr", {}, ...COLUMNS.map(([name, value, shown]) => make("td", { class: name === "latency" ? "number" : null }, (shown ?? value)(run) || "-")))));
    const left = this.runs.length - this.shown;
    this.more.hidden = left === 0;
    this.more.textContent = `Show ${Math.min(RUNS_STEP, left)} more of ${this.runs.length}`;
    this.count.textContent = this.runs.length === RUNS.length ? counted(RUNS.length, "run") : `${this.runs.length} of ${counted(RUNS.length, "run")}`;
    dispatchEvent(new Event("tables"));
  }
}

const runsPlace = document.getElementById("runs-table");
if (runsPlace) new RunTable(runsPlace);
filters.tell();
charts?.lead();
