// The tree of modules as a flame graph: the model above, what it holds below; choosing a module looks into it.
class ModuleExplorer {
  constructor(place) {
    this.data = dataOf(place);
    this.source = place.dataset.source;
    const { views } = this.data;
    this.crumbs = make("div", { class: "crumbs" });
    this.sides = make("span");
    this.holder = make("div");
    this.note = make("p", { class: "note" });
    this.numbers = make("details", { class: "numbers", ontoggle: () => this.table() }, make("summary", {}, "Show the numbers"));
    this.legend = make("div");
    place.append(make("div", { class: "controls" },
      views.length > 1 ? chooser("Comparison or experiment", views.map((view) => view.label), 0, (view) => this.choose(view)) : null,
      this.sides), this.crumbs, this.holder, this.legend, this.note, this.numbers);
    this.flame = new Flame(this.holder, "Modules by their share; arrow keys move, Enter looks into one");
    this.choose(0);
  }

  choose(place) {
    this.view = this.data.views[place];
    this.side = this.view.sides.length - 1;
    this.sides.replaceChildren(this.view.sides.length > 1
      ? chooser("Widths show", this.view.sides, this.side, (side) => { this.side = side; this.lay(); }) : "");
    this.note.textContent = this.view.note;
    this.numbers.open = false;
    for (const table of this.numbers.querySelectorAll(".table")) table.remove();
    this.lay();
  }

  // Children stand below their module, beside one another in the order they run.
  lay() {
    const items = [];
    const used = new Set();
    const { unit, categories } = this.data;
    const add = (node, depth, start, path, parent) => {
      const [name, values, shares, operators, category, ratio, children] = node;
      const size = figure(values[this.side]) || 0;
      const full = parent ? [...path, name] : path;
      const times = this.view.sides.map((side, at) => (side ? [side, `${values[at]} ${unit}, ${shares[at]}`] : [unit, `${values[at]}, ${shares[at]}`]));
      const more = [...times, ...(ratio === "-" ? [] : [["speedup", ratio]]), ...(operators ? [["operators", operators]] : [])];
      const item = {
        depth, start, size, parent, colour: children.length ? PLAIN : categories[category][1],
        label: `${name} · ${values[this.side]}${unit === "ms" ? " ms" : ""}`,
        name, path: full, operators, more, said: [name, ...more.map(([what, value]) => `${what} ${value}`)].join(", "), tip: [["module", full.join(".") || name], ...more],
      };
      if (!children.length) used.add(category);
      items.push(item);
      let at = start;
      for (const child of children) at += add(child, depth + 1, at, full, item);
      return size;
    };
    add(this.view.tree, 0, 0, [], null);
    this.items = items;
    this.legend.replaceChildren(legendOf([...categories.filter((_, place) => used.has(place)), ["modules that hold others", PLAIN]]));
    this.look(items[0]);
  }

  look(item) {
    const above = [];
    for (let each = item; each; each = each.parent) above.unshift(each);
    this.crumbs.replaceChildren(...present([...above.map((each) => (each === item
      ? make("strong", {}, each.name)
      : make("button", { type: "button", onclick: () => this.look(each) }, each.name))),
      make("span", { role: "status" }, item.more.map(([what, value]) => `${what} ${value}`).join(" · ")),
      item.parent && item.operators && !item.name.includes(" ")
        ? make("button", { type: "button", onclick: () => dispatchEvent(new CustomEvent("show-operators", { detail: item.path.join(".") })) }, "Show its operators")
        : null]));
    this.flame.show(this.items, item, (chosen) => this.look(chosen));
  }

  table() {
    if (!this.numbers.open || this.numbers.querySelector(".table")) return;
    const { unit } = this.data;
    const { sides, tree } = this.view;
    const rows = [];
    const add = ([name, values, shares, operators, , ratio, children], depth) => {
      const cells = values.flatMap((value, at) => [value, shares[at]]);
      rows.push(["\u2003".repeat(depth) + name, operators ? String(operators) : "-", ...cells, ...(sides.length > 1 ? [ratio] : [])]);
      for (const child of children) add(child, depth + 1);
    };
    add(tree, 0);
    const headers = ["module", "operators", ...sides.flatMap((side) => [`${side} ${unit}`.trim(), "share"]), ...(sides.length > 1 ? ["speedup"] : [])];
    const table = makeTable(headers, rows, headers.map((_, at) => at).slice(1), `${this.source}#/${this.view.place}/modules`);
    table.classList.add("tree");
    this.numbers.append(table);
  }
}

explore("modules", (place) => new ModuleExplorer(place));
