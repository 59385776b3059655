// One run from start to end: execute above its calls, calls above modules, modules above their operators;
// choosing one looks into it.
const asMs = (ns) => {
  const ms = ns / 1e6;
  if (ns === 0) return "0";
  return ms.toFixed(ms >= 100 ? 1 : ms >= 10 ? 2 : ms >= 0.1 ? 3 : 4);
};

class Timeline {
  constructor(place) {
    this.data = dataOf(place);
    const { views } = this.data;
    this.lead = make("p");
    this.crumbs = make("div", { class: "crumbs" });
    this.holder = make("div");
    this.legend = make("div");
    this.note = make("p", { class: "note" });
    this.numbers = make("details", { class: "numbers", ontoggle: () => this.table() }, make("summary", {}, "Show the numbers"));
    place.append(make("div", { class: "controls" },
      views.length > 1 ? chooser("Experiment", views.map((view) => view.label), 0, (view) => this.choose(view)) : null),
    this.lead, this.crumbs, this.holder, this.legend, this.note, this.numbers);
    this.flame = new Flame(this.holder, "Events of one run in time; arrow keys move, Enter looks into one");
    this.choose(0);
  }

  choose(place) {
    this.view = this.data.views[place];
    const { texts, categories } = this.data;
    this.items = this.view.events.map(([name, category, depth, start, size]) => {
      const what = category === -2 ? "module" : category < 0 ? "" : categories[category][0];
      const label = texts[name];
      const times = [["starts at", `${asMs(start)} ms`], ["takes", `${asMs(size)} ms`]];
      return {
        depth, start, size, label, what, colour: category < 0 ? PLAIN : categories[category][1],
        said: `${label}, starts at ${asMs(start)} ms, takes ${asMs(size)} ms`, tip: [[what || "event", label], ...times],
      };
    });
    this.lead.replaceChildren(...breakable(this.view.lead));
    this.note.textContent = this.view.note;
    const used = new Set(this.view.events.map((event) => event[1]));
    this.legend.replaceChildren(legendOf([...categories.filter((_, at) => used.has(at)), ["execute, calls and modules", PLAIN]]));
    this.numbers.open = false;
    for (const table of this.numbers.querySelectorAll(".table")) table.remove();
    this.whole = this.items.reduce((longest, item) => (item.depth < longest.depth || item.size > longest.size ? item : longest));
    this.look(this.whole);
  }

  look(item) {
    this.crumbs.replaceChildren(...present([
      item === this.whole ? null : make("button", { type: "button", onclick: () => this.look(this.whole) }, "The whole run"),
      make("strong", {}, item.label),
      make("span", { role: "status" }, `starts at ${asMs(item.start)} ms, takes ${asMs(item.size)} ms`),
      item.what === "module" && !item.label.includes(" ")
        ? make("button", { type: "button", onclick: () => dispatchEvent(new CustomEvent("show-operators", { detail: item.label })) }, "Show its operators")
        : null]));
    this.flame.show(this.items, { ...item, depth: this.whole.depth }, (chosen) => this.look(chosen), (at, step) => `${+(at / 1e6).toFixed(step < 1e4 ? 4 : step < 1e6 ? 2 : 0)} ms`);
  }

  table() {
    if (!this.numbers.open || this.numbers.querySelector(".table")) return;
    const events = this.items.filter((item) => item.what !== "module");
    const rows = events.slice(0, ROWS_SHOWN).map((item) => ["\u2003".repeat(item.depth) + item.label, item.what || "-", asMs(item.start), asMs(item.size)]);
    this.numbers.append(makeTable(["event", "category", "starts at ms", "takes ms"], rows, [2, 3], `${this.view.file}#run=${this.view.run}`));
    const rest = events.length - rows.length;
    if (rest > 0) this.numbers.append(make("p", { class: "note table" }, `The first ${rows.length} of ${events.length}; all are in ${this.view.file}.`));
  }
}

explore("timeline", (place) => new Timeline(place));
