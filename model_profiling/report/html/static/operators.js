// The table of every operator: sort by any column, search, choose a category, open a row for all that is known.
const FIRST = 20;
const MORE = 1000;

class OperatorTable {
  constructor(place) {
    this.data = dataOf(place);
    this.source = place.dataset.source;
    this.count = make("p", { class: "count", role: "status" });
    this.holder = make("div");
    this.search = make("input", { type: "search", placeholder: "name, layer or source line", oninput: () => this.show() });
    this.filters = ["category", "SME2"].map((header) => ({ header, select: make("select", { onchange: () => this.show() }) }));
    this.controls = make("div", { class: "controls" },
      this.data.views.length > 1 ? chooser("Comparison or experiment", this.data.views.map((view) => view.label), 0, (view) => this.choose(view)) : null,
      make("label", {}, "Search", this.search),
      ...this.filters.map(({ header, select }) => make("label", {}, header === "category" ? "Category" : header, select)));
    this.note = make("p", { class: "note" });
    place.classList.add("operators");
    place.append(this.controls, this.count, this.holder, this.note);
    addEventListener("beforeprint", () => this.holder.querySelector(".more")?.click());
    this.choose(0);
  }

  choose(place) {
    const view = this.data.views[place];
    const { texts } = this.data;
    this.view = view;
    this.sorted = null;
    this.rows = view.rows.map((numbers, row) => {
      const cells = numbers.map((number) => texts[number]);
      const written = view.inside[row].map(([series, operator]) => texts[this.data.code[series][operator]] ?? "");
      return { cells, inside: view.inside[row], found: [...cells, ...written].join("\n").toLowerCase() };
    });
    for (const { header, select } of this.filters) {
      const known = [...new Set(this.rows.map((row) => this.kind(row, header)))].sort();
      select.replaceChildren(make("option", { value: "" }, "all"), ...known.map((name) => make("option", { value: name }, name)));
    }
    this.note.textContent = view.note;
    this.show();
  }

  // What a filter asks for: without the reason of a "no: ..." and the place of a "yes, ...".
  kind(row, header) {
    return row.cells[this.view.headers.indexOf(header)].split(/[:,]/)[0];
  }

  // `module:a.b` is said by what is in that module; any other word by what has it in a cell or its source text.
  says(row, word) {
    if (!word.startsWith("module:")) return row.found.includes(word);
    const path = word.slice("module:".length);
    const [own] = row.cells[this.view.headers.indexOf("layer")].toLowerCase().split(" ");
    return own === path || own.startsWith(`${path}.`);
  }

  // Only what is asked for; the longest stay first until a column is chosen.
  chosen() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = this.rows.filter((row) => words.every((word) => this.says(row, word))
      && this.filters.every(({ header, select }) => !select.value || this.kind(row, header) === select.value));
    if (!this.sorted) return rows;
    const { at, down } = this.sorted;
    return [...rows].sort(ordering((row) => row.cells[at], down, this.view.numbers.includes(at)));
  }

  show(from = 0) {
    const rows = this.chosen();
    const shown = Math.min(rows.length, from + (from ? MORE : FIRST));
    const { headers, numbers } = this.view;
    const kind = (column) => (numbers.includes(column) ? "number" : null);
    if (from === 0) {
      this.body = make("tbody");
      this.table = make("table", { "data-source": `${this.source}#/${this.view.place}` },
        make("thead", {}, make("tr", {}, ...headers.map((header, column) => make("th",
          { scope: "col", class: kind(column), "aria-sort": this.sorted?.at === column ? (this.sorted.down ? "descending" : "ascending") : null },
          make("button", { type: "button", onclick: () => this.sort(column) }, header))))),
        this.body);
      this.holder.replaceChildren(make("div", { class: "table" }, this.table));
    }
    this.body.append(...rows.slice(from, shown).flatMap((row) => this.line(row)));
    this.holder.querySelector(".more")?.remove();
    if (shown < rows.length) {
      this.holder.append(make("button", { type: "button", class: "more", onclick: () => this.show(shown) }, `Show ${Math.min(MORE, rows.length - shown)} more of ${rows.length}`));
    }
    const whole = this.rows.length;
    this.count.textContent = rows.length === whole ? `${whole} operators` : `${rows.length} of ${whole} operators`;
    dispatchEvent(new Event("tables"));
  }

  sort(column) {
    const down = this.sorted?.at === column ? !this.sorted.down : this.view.numbers.includes(column);
    this.sorted = { at: column, down };
    this.show();
    this.table.querySelectorAll("th button")[column].focus();
  }

  line(row) {
    const { headers, numbers } = this.view;
    const known = row.inside.some(([series, operator]) => this.data.operators[series][operator]);
    const written = make("span", {}, ...breakable(row.cells[headers.indexOf("operator")]));
    const opener = known ? make("button", { type: "button", class: "open", "aria-expanded": "false" }, written) : make("code", {}, written);
    const cells = row.cells.map((text, column) => {
      const what = headers[column];
      if (what === "operator") return make("td", {}, opener);
      const kinds = { verdict: text.split(" ")[0], SME2: "sme2", layer: "layer" };
      return make("td", { class: numbers.includes(column) ? "number" : kinds[what] }, ...(what === "source" ? [text] : breakable(text)));
    });
    const line = make("tr", {}, ...cells);
    opener.addEventListener("click", () => {
      const open = opener.getAttribute("aria-expanded") === "true";
      opener.setAttribute("aria-expanded", String(!open));
      if (open) line.nextElementSibling.remove();
      else line.after(this.inside(row));
    });
    return [line];
  }

  inside(row) {
    const sides = row.inside.map(([series, operator]) => this.side(series, operator)).filter(Boolean);
    return make("tr", { class: "inside" }, make("td", { colspan: this.view.headers.length }, make("div", { class: "sides" }, ...sides)));
  }

  side(series, operator) {
    const { texts, facts, operators, code } = this.data;
    const known = operators[series][operator];
    if (!known) return null;
    const pairs = facts.flatMap((name, place) => (known[place] < 0 ? [] : [make("dt", {}, name), make("dd", {}, ...breakable(texts[known[place]]))]));
    const written = texts[code[series][operator]];
    return make("div", { "data-series": this.data.series[series], "data-operator": operator },
      make("h3", {}, this.data.series[series]),
      make("dl", { class: "facts" }, ...pairs),
      written ? make("pre", { class: "code", tabindex: "0" }, make("code", {}, written)) : null);
  }
}

explore("operators", (place) => {
  const table = new OperatorTable(place);
  addEventListener("show-operators", ({ detail }) => {
    table.search.value = `module:${detail}`;
    table.show();
    table.search.focus();
    place.scrollIntoView({ block: "start" });
  });
});
