// The page's data, with every text in its place; and figures as the tables of the page write them.
const PLACE = document.querySelector('.explorer[data-kind="histories"]');
const STORE = dataOf(PLACE);
const NAMED = ["model", "format", "device", "kernels", "state", "commit", "branch", "tags", "noReport"];
const RUNS = STORE.runs.map(([id, measured, ms, report, ...places]) => {
  const run = { id, measured, ms, report, at: Date.parse(`${measured.replace(" ", "T")}Z`) };
  NAMED.forEach((name, column) => { run[name] = STORE.texts[places[column]]; });
  run.found = [id, measured, ...NAMED.map((name) => run[name])].join("\n").toLowerCase();
  return run;
});
const NEWEST = Math.max(...RUNS.map((run) => run.at));
const HISTORIES = STORE.histories.map((history, place) => {
  const series = history.threads ? `${history.experiment}, ${history.threads} thread${history.threads === 1 ? "" : "s"}` : history.experiment;
  const last = history.changes.at(-1) ?? null;
  const percent = last ? 100 * last[3] : 0;
  const drifts = last !== null && last[4] !== null;
  const commits = new Set(history.runs.map((run) => RUNS[run].commit));
  const found = [history.model, history.format, history.device, series, ...commits].join("\n").toLowerCase();
  return { ...history, place, series, last, percent, drifts, found };
});

const decimals = (ms) => (ms >= 100 ? 1 : ms >= 10 ? 2 : ms >= 0.1 ? 3 : 4);
const milliseconds = (ms) => (ms === null ? "-" : ms.toFixed(decimals(Math.abs(ms))));
const day = (time) => new Date(time).toISOString().slice(0, 10);
const spanned = (first, last) => (first === last ? first : `${first} to ${last}`);
const unbroken = (text) => make("span", { class: "nowrap" }, text);
const counted = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
const changed = (percent, drifts) => `${Math.abs(percent).toFixed(1)}% ${percent > 0 ? "slower" : "faster"}${drifts ? " little by little" : ""}`;

function badge(percent, drifts) {
  return make("span", { class: percent > 0 ? "slower" : "faster" },
    make("span", { "aria-hidden": "true" }, percent > 0 ? "\u25B2 " : "\u25BC "), changed(percent, drifts));
}

// A link to a run's report, or why there is none.
function reportOf(run, text = "report") {
  return run.report ? make("a", { href: run.report }, text) : make("span", { class: "soft" }, run.noReport || "no report");
}
// One choice for models and devices, charts and runs; which charts in which order is said beside them.
const HEADLINE = "one for each model and device";
const DAYS = [["all", Infinity], ["last 90 days", 90], ["last 30 days", 30], ["last 7 days", 7]];
const SHOWN = [
  ["all", () => true],
  ["changed", (history) => history.last !== null],
  ["slower", (history) => history.percent > 0],
  ["faster", (history) => history.percent < 0],
];
const rank = ({ percent }) => (percent > 0 ? 2 : percent < 0 ? 1 : 0);
const byName = (a, b) => a.place - b.place;
const ORDERS = [
  ["slower first", (a, b) => rank(b) - rank(a) || b.percent - a.percent || byName(a, b)],
  ["latest change first", (a, b) => since(b) - since(a) || byName(a, b)],
  ["name", byName],
  ["longest latency first", (a, b) => b.ms.at(-1) - a.ms.at(-1)],
];
const since = (history) => (history.last ? Date.parse(history.last[5]) : 0);

const labels = (...selects) => selects.map((select) => select.parentElement);

class Filters {
  constructor(place) {
    const names = (values) => ["all", ...[...new Set(values)].filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }))];
    const series = [...new Set(HISTORIES.map((history) => history.series))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    this.search = make("input", { type: "search", placeholder: "model, device, commit", oninput: () => this.tell() });
    this.model = this.choice("Model", names(RUNS.map((run) => run.model)));
    this.format = this.choice("Format", names(RUNS.map((run) => run.format)));
    this.device = this.choice("Device", names(RUNS.map((run) => run.device)));
    this.days = this.choice("Dates", DAYS.map(([name]) => name));
    this.series = this.choice("Experiment", [HEADLINE, "all", ...series]);
    this.shown = this.choice("Charts", SHOWN.map(([name]) => name));
    this.order = this.choice("Order", ORDERS.map(([name]) => name));
    this.all = [this.model, this.format, this.device, this.days, this.series, this.shown, this.order];
    this.clear = make("button", { type: "button", onclick: () => { this.reset(); this.search.focus(); } }, "Clear");
    place.append(make("div", { class: "controls" }, make("label", {}, "Search", this.search), ...labels(this.model, this.format, this.device, this.days), this.clear));
    this.ofCharts = make("div", { class: "controls" }, ...labels(this.shown, this.order, this.series));
  }

  choice(label, options) {
    const select = make("select", { name: label.toLowerCase(), onchange: () => this.tell() }, ...options.map((text) => make("option", { value: text }, text)));
    make("label", {}, label, select);
    return select;
  }

  reset() {
    this.search.value = "";
    for (const select of this.all) select.selectedIndex = 0;
    this.tell();
  }

  get changedByReader() {
    return this.search.value !== "" || this.all.some((select) => select.selectedIndex > 0);
  }

  tell() {
    this.words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const days = DAYS[this.days.selectedIndex][1];
    this.from = Number.isFinite(days) ? NEWEST - days * 86_400_000 : -Infinity;
    this.clear.disabled = !this.changedByReader;
    dispatchEvent(new Event("filter"));
  }

  // Whether something with a model, a format and a device is asked for.
  asks({ model, format, device }) {
    const fits = (select, value) => select.value === "all" || value === undefined || select.value === value;
    return fits(this.model, model) && fits(this.format, format) && fits(this.device, device);
  }

  finds(text) {
    return this.words.every((word) => text.includes(word));
  }

  runs() {
    return RUNS.filter((run) => this.asks(run) && run.at >= this.from && this.finds(run.found));
  }

  histories() {
    const series = this.series.value;
    const chosen = (history) => (series === HEADLINE ? history.headline : series === "all" || series === history.series);
    return HISTORIES
      .filter((history) => this.asks(history) && chosen(history) && this.finds(history.found) && SHOWN[this.shown.selectedIndex][1](history))
      .filter((history) => RUNS[history.runs.at(-1)].at >= this.from)
      .sort(ORDERS[this.order.selectedIndex][1]);
  }
}

const bar = make("section", { class: "filters", "aria-label": "What is shown" });
const filters = new Filters(bar);

// The table of models and devices is in the page already: rows and columns are hidden, not made again.
const matrix = document.querySelector("#models-and-devices table");
matrix.classList.add("matrix");
matrix.closest("section").before(bar);
addEventListener("filter", () => {
  const runs = filters.runs();
  const programs = new Set(runs.map((run) => `${run.model} ${run.format}`.trim()));
  const devices = new Set(runs.map((run) => run.device));
  const heads = [...matrix.tHead.rows[0].cells];
  const hidden = heads.map((head, column) => column > 0 && column < heads.length - 1 && !devices.has(head.textContent));
  for (const row of matrix.rows) [...row.cells].forEach((cell, column) => { cell.hidden = hidden[column]; });
  for (const row of matrix.tBodies[0].rows) row.hidden = !programs.has(row.cells[0].textContent);
});
for (const cell of document.querySelectorAll("#what-changed td:first-child, .matrix td")) {
  const way = cell.textContent.match(/% (slower|faster)/)?.[1];
  if (way) cell.classList.add(way);
}

// One small chart for each history: a dot for every run, its interval, the level it is at, where that changed.
// All share their dates, so that what happened on one day stands in one column.
const WIDE = 300;
const HIGH = 96;
const EDGE = 7;
const LEAST_SPAN = 0.1;
const CARDS = 24;
const IN_SHORT = { "SME2 kernels ran": "SME2 ran", "SME2 kernels ran, emulated": "SME2 ran, emulated", "SME or SME2 kernels ran": "SME or SME2 ran", "no SME2 kernel ran": "no SME2", "not tested": "SME2 not tested" };

class HistoryCard {
  constructor(history, from, to) {
    const start = history.runs.findIndex((run) => RUNS[run].at >= filters.from);
    this.history = history;
    this.start = start;
    this.ms = history.ms.slice(start);
    this.runs = history.runs.slice(start).map((run) => RUNS[run]);
    this.low = history.low.slice(start);
    this.high = history.high.slice(start);
    this.changes = history.changes.filter(([at, , , , until]) => Math.max(at, until ?? at) > start).map((change) => this.shown(change));
    this.others = new Map();
    for (const [at, text] of history.marks.filter(([at]) => at >= start)) {
      this.others.set(at - start, [...(this.others.get(at - start) ?? []), text]);
    }
    const span = Math.max(to - from, 1);
    this.xs = this.runs.map((run) => (to === from ? WIDE / 2 : EDGE + ((run.at - from) / span) * (WIDE - 2 * EDGE)));
    const shown = [...this.ms, ...this.changes.flatMap(({ before, after }) => [before, after])];
    const middle = (Math.min(...shown) + Math.max(...shown)) / 2;
    const half = Math.max((Math.max(...shown) - Math.min(...shown)) / 2, (middle * LEAST_SPAN) / 2) * 1.08;
    this.bottom = middle - half;
    this.top = middle + half;
    this.ys = this.ms.map((ms) => this.y(ms));
  }

  // A change from the first run that is shown on; of a drift that began earlier, what is left of it.
  shown([at, before, after, , until]) {
    const end = until === null ? null : until - this.start;
    if (at > this.start) return { at: at - this.start, before, after, end };
    return { at: 1, before: before + ((after - before) * (this.start - at + 1)) / (until - at + 1), after, end };
  }

  y(ms) {
    const share = (Math.min(Math.max(ms, this.bottom), this.top) - this.bottom) / (this.top - this.bottom);
    return HIGH - EDGE - share * (HIGH - 2 * EDGE);
  }

  element() {
    const { history } = this;
    const newest = this.runs.at(-1);
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    const state = history.last ? badge(history.percent, history.drifts) : make("span", { class: "soft" }, history.judged ? "no change found" : "too few runs to judge");
    const card = make("article", { class: "card", id: `history-${history.place}`, tabindex: "-1" },
      make("h3", {}, history.model, " ", make("span", { class: "soft" }, history.format)),
      make("p", { class: "where" }, make("span", { class: "soft" }, history.device), make("strong", {}, `${milliseconds(this.ms.at(-1))} ms`)),
      make("div", { class: "plot" }, this.drawing(), make("div", { class: "scale", "aria-hidden": "true" }, make("span", {}, this.top.toPrecision(3)), make("span", {}, this.bottom.toPrecision(3)))),
      make("p", { class: "state" }, state, make("span", { class: "soft" }, IN_SHORT[newest.kernels] ?? newest.kernels)),
      this.readout,
      this.list());
    this.rest();
    return card;
  }

  drawing() {
    const at = this.xs.map((x, place) => `${x.toFixed(1)} ${this.ys[place].toFixed(1)}`);
    const intervals = this.xs.flatMap((x, place) => (this.low[place] === null ? [] : `M${x.toFixed(1)} ${this.y(this.low[place]).toFixed(1)}V${this.y(this.high[place]).toFixed(1)}`));
    this.ring = draw("circle", { class: "ring", r: 5, visibility: "hidden" });
    this.link = draw("a", { tabindex: "0", onkeydown: (event) => this.key(event), onfocus: () => this.point(this.at ?? this.xs.length - 1), onblur: () => this.rest(), onclick: (event) => this.follow(event) },
      draw("rect", { width: WIDE, height: HIGH, fill: "transparent" }), this.ring);
    this.name(this.xs.length - 1);
    const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, onpointermove: (event) => this.move(event), onpointerdown: (event) => this.press(event), onpointerleave: () => this.rest() },
      ...this.marks(),
      draw("path", { class: "interval", d: intervals.join("") }),
      draw("path", { class: "dots", "stroke-width": Math.max(2.6, Math.min(5, 250 / this.xs.length)).toFixed(1), d: at.map((point) => `M${point}h0`).join("") }),
      ...this.levels(), this.link);
    this.svg = svg;
    return svg;
  }

  // Where something else changed, and where the level did.
  marks() {
    const others = [...this.others.keys()].map((place) => draw("path", { class: "other", d: `M${this.xs[place].toFixed(1)} ${HIGH}v-6` }));
    const changes = this.changes.filter(({ end }) => end === null).map(({ at, before, after }) => draw("path", { class: `change ${after > before ? "slower" : "faster"}`, d: `M${this.middle(at).toFixed(1)} 0V${HIGH}` }));
    return [...others, ...changes];
  }

  middle(at) {
    return (this.xs[at - 1] + this.xs[at]) / 2;
  }

  // The level before the first change, and after each, drifts as slanted lines; of a history without one, its median.
  levels() {
    const sorted = [...this.ms].sort((a, b) => a - b);
    let ms = this.history.changes.filter(([at, , , , until]) => (until ?? at) <= this.start).at(-1)?.[2] ?? this.changes[0]?.before ?? sorted[Math.floor(sorted.length / 2)];
    let [x, kind] = [this.xs[0], ""];
    const drawn = [];
    const line = (to, height) => {
      if (to > x || !drawn.length) drawn.push(draw("path", { class: `level${kind}`, d: `M${x.toFixed(1)} ${this.y(ms).toFixed(1)}L${to.toFixed(1)} ${this.y(height).toFixed(1)}` }));
      [x, ms] = [Math.max(x, to), height];
    };
    for (const { at, before, after, end } of this.changes) {
      if (end === null) line(this.middle(at), ms);
      kind = after > before ? " slower" : " faster";
      ms = end === null ? after : before;
      if (end !== null) line(end + 1 < this.xs.length ? this.middle(end + 1) : this.xs.at(-1), after);
    }
    line(this.xs.at(-1), ms);
    return drawn;
  }

  nearest(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    const x = ((event.clientX - left) / width) * WIDE;
    return this.xs.reduce((best, each, place) => (Math.abs(each - x) <= Math.abs(this.xs[best] - x) ? place : best), 0);
  }

  move(event) {
    if (event.pointerType !== "touch") this.point(this.nearest(event));
  }

  // A finger's first touch shows a run, its second on the same opens the report.
  press(event) {
    const found = this.nearest(event);
    this.held = event.pointerType === "touch" && found !== this.at;
    this.point(found);
  }

  follow(event) {
    if (this.held || !this.runs[this.at ?? this.xs.length - 1].report) event.preventDefault();
    this.held = false;
  }

  key(event) {
    const last = this.xs.length - 1;
    const now = this.at ?? last;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, to)));
  }

  point(place) {
    if (place === this.at) return;
    this.at = place;
    fill(this.ring, { cx: this.xs[place], cy: this.ys[place], visibility: "visible" }, []);
    this.name(place);
    const run = this.runs[place];
    this.readout.replaceChildren(make("strong", {}, this.latency(place)), `, ${this.words(place)}. `, make("span", { class: "soft" }, run.report ? "Click: its report" : run.noReport || "no report"));
  }

  name(place) {
    const run = this.runs[place];
    const text = `${this.history.model} ${this.history.format} on ${this.history.device}: ${this.latency(place)}, ${this.words(place)}`;
    if (run.report) fill(this.link, { href: run.report, role: "link", "aria-label": `${text}: its report` }, []);
    else {
      this.link.removeAttribute("href");
      fill(this.link, { role: "img", "aria-label": `${text}: ${run.noReport || "no report"}` }, []);
    }
  }

  latency(place) {
    const [low, high] = [this.low[place], this.high[place]];
    return `${milliseconds(this.ms[place])} ms${low === null ? "" : ` (${milliseconds(low)} to ${milliseconds(high)})`}`;
  }

  words(place) {
    const run = this.runs[place];
    return [run.measured, run.commit && `commit ${run.commit}`, ...(this.others.get(place) ?? [])].filter(Boolean).join(", ");
  }

  // What is read when no run is pointed at.
  rest() {
    this.at = undefined;
    this.ring.setAttribute("visibility", "hidden");
    const { last } = this.history;
    const dates = [this.runs[0].measured.slice(0, 10), this.runs.at(-1).measured.slice(0, 10)];
    const since = last ? [`${milliseconds(last[1])} to ${milliseconds(last[2])} ms on `, unbroken(last[5]), ". "] : [];
    this.readout.replaceChildren(...since, `${this.history.series}: ${counted(this.runs.length, "run")}, `, unbroken(spanned(...dates)));
  }

  // The same for those who read rather than point: every run, the newest first.
  list() {
    const body = make("div");
    const details = make("details", { ontoggle: () => {
      if (!details.open || body.childElementCount) return;
      const rows = this.runs.map((run, place) => make("tr", {}, make("td", {}, run.measured), make("td", { class: "number" }, milliseconds(this.ms[place])), make("td", {}, run.commit || "-"), make("td", {}, reportOf(run))));
      body.append(make("div", { class: "table" }, make("table", {},
        make("thead", {}, make("tr", {}, ...["measured", "ms", "commit", "report"].map((text) => make("th", { scope: "col", class: text === "ms" ? "number" : null }, text)))),
        make("tbody", {}, ...rows.reverse()))));
      if (this.history.left) body.append(make("p", { class: "note" }, `${counted(this.history.left, "older run")} left out.`));
      dispatchEvent(new Event("tables"));
    } }, make("summary", {}, `List ${counted(this.runs.length, "run")}`), body);
    return details;
  }
}

class Charts {
  constructor(place) {
    this.count = make("p", { class: "count", role: "status" });
    this.grid = make("div", { class: "cards" });
    this.more = make("button", { type: "button", class: "more", onclick: () => this.show(this.drawn) });
    place.querySelector(".instead").hidden = true;
    place.append(filters.ofCharts, this.count, this.grid, this.more, make("p", { class: "note" },
      "Each dot is the median of a run, with its interval; the line is its level. A dashed line marks a change of the level; a tick below marks another program, ",
      "ExecuTorch, kit, runner or system. All charts show the same dates; each has its own scale, which covers at least 10% of the latency. ",
      "Arrow keys go from run to run; Enter opens the report."));
    addEventListener("filter", () => this.show());
    addEventListener("hashchange", () => this.lead());
  }

  show(from = 0, upTo = from + CARDS) {
    if (from === 0) {
      this.chosen = filters.histories();
      this.grid.replaceChildren();
      const ends = this.chosen.flatMap((history) => [Math.max(RUNS[history.runs[0]].at, filters.from), RUNS[history.runs.at(-1)].at]);
      this.dates = [Math.min(...ends), Math.max(...ends)];
    }
    this.drawn = Math.min(this.chosen.length, upTo);
    this.grid.append(...this.chosen.slice(from, this.drawn).map((history) => new HistoryCard(history, ...this.dates).element()));
    const left = this.chosen.length - this.drawn;
    this.more.hidden = left === 0;
    this.more.textContent = `Show ${Math.min(CARDS, left)} more of ${this.chosen.length}`;
    const whole = HISTORIES.length;
    this.count.textContent = this.chosen.length ? `${this.chosen.length === whole ? "" : `${this.chosen.length} of `}${counted(whole, "history", "histories")}, ${spanned(...this.dates.map(day))}` : HISTORIES.length ? "No history is like that." : "No latency was measured.";
  }

  // From a table to a chart: what the filters hide is shown again.
  lead() {
    const wanted = Number(location.hash.match(/^#history-(\d+)$/)?.[1] ?? NaN);
    if (!HISTORIES[wanted]) return;
    if (!this.chosen.includes(HISTORIES[wanted])) filters.reset();
    if (!this.chosen.includes(HISTORIES[wanted])) {
      filters.series.value = "all";
      filters.tell();
    }
    const place = this.chosen.indexOf(HISTORIES[wanted]);
    if (place >= this.drawn) this.show(this.drawn, place + 1);
    const card = document.getElementById(`history-${wanted}`);
    card.scrollIntoView({ block: "center" });
    card.focus({ preventScroll: true });
  }
}

const charts = new Charts(PLACE);
// Every run, the newest first until a column is chosen.
const RUNS_STEP = 50;
const COLUMNS = [
  ["measured", (run) => run.measured, (run) => make("span", { class: "nowrap" }, run.measured)],
  ["model", (run) => `${run.model} ${run.format}`.trim()],
  ["device", (run) => run.device],
  ["latency", (run) => (run.ms === null ? "-" : `${milliseconds(run.ms)} ms`)],
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
    place.replaceWith(make("div", { class: "explorer" }, this.count, make("div", { class: "table" }, make("table", {}, make("thead", {}, make("tr", {}, ...this.heads)), this.body)), this.more));
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
    const [name, text] = COLUMNS[column];
    return runs.sort(ordering(text, down, name === "latency"));
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

new RunTable(document.querySelector("#runs .table"));
filters.tell();
charts.lead();
