"use strict";
// The page: one scene at a time, the picture of the model beside it, and the controls.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const get = (id) => document.getElementById(id);
const PHASES = { forward: "Forward", loss: "Loss", backward: "Backward" };
class Viewer {
  constructor(page, numbers) {
    Object.assign(this, { page, numbers, at: 0, sentence: 0, maps: [] });
    this.batch = Math.max(1, ...["src", "tgt"].map((side) => page.tokens[side].length));
    const shapes = page.scenes.filter((s) => s.enters && s.module === "").flatMap((s) => s.outputs);
    const first = shapes.length ? page.views[shapes[0].view] : { shape: [] };
    if (first.shape.length >= (first.kind === "int" ? 2 : 3)) this.batch = first.shape[0];
    this.begin = {};
    page.scenes.forEach((scene, i) => (this.begin[scene.phase] ??= i));
    this.controls();
    this.picture = new Picture(this);
    this.show(Math.min(Number(/^#step=(\d+)$/.exec(window.location.hash)?.[1] || 1), page.scenes.length) - 1, false);
  }

  // ---- what things are called

  theme() {
    const chosen = document.documentElement.dataset.theme;
    return chosen || (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  // "(B, H, T, S)": from the comment beside the statement, or from sizes that stand for one thing only.
  letters(view) {
    const { shape } = view;
    if (view.letters) return view.letters.replace("(..., ", `(${["", "B, ", "B, H, "][shape.length - 2] || ""}`);
    const known = this.page.letters;
    const found = shape.map((n, axis) => (n === 1 && axis ? "1" : known[n]));
    const strange = found.some((letter, axis) => !letter || (letter === "B" && axis));
    return strange || shape.length < 2 || (shape.length === 2 && !/[DFV]/.test(found)) ? "" : `(${found.join(", ")})`;
  }

  shapeText(view) {
    const letters = this.letters(view);
    return tuple(view.shape) + (letters ? ` = ${letters}` : "");
  }

  shapeWords(view) {
    return view.shape.length ? `${view.shape.join(" by ")} ${view.kind === "bool" ? "switches" : "numbers"}` : "one number";
  }

  // The labels along an axis, or that of one entry; null or "" where it has none.
  labels(view, axis, n, i = null) {
    const kind = view.axes?.[axis];
    if (!kind) return i === null ? null : "";
    const [side, what] = kind.split(" ");
    const sentences = this.page.tokens[side] || [];
    const list = what === "words" ? this.page.words[side] : what === "all" ? sentences.flat()
      : sentences[Math.min(this.sentence, sentences.length - 1)];
    if (!list) return i === null ? null : "";
    const visible = (text) => String(text ?? "").replace(/ /g, "·").replace(/\n/g, "↵");
    return i === null ? Array.from({ length: n }, (_, k) => visible(list[k])) : visible(list[i]);
  }

  // ---- controls

  controls() {
    const scenes = this.page.scenes;
    const slider = get("slider");
    slider.max = scenes.length - 1;
    slider.addEventListener("input", () => this.show(Number(slider.value)));
    const press = (id, action) => get(id).addEventListener("click", action);
    press("first", () => this.show(0));
    press("last", () => this.show(scenes.length - 1));
    press("back", () => this.show(this.at - 1));
    press("next", () => this.show(this.at + 1));
    press("layer-back", () => this.layer(-1));
    press("layer-next", () => this.layer(1));
    for (const phase of Object.keys(PHASES).filter((p) => p in this.begin)) {
      const n = scenes.filter((s) => s.phase === phase).length;
      const button = element("button", { type: "button", class: phase, style: `flex-grow:${n}`,
        title: `Where ${phase} begins`, "data-phase": phase }, PHASES[phase]);
      button.addEventListener("click", () => this.show(this.begin[phase]));
      get("phases").append(button);
    }
    document.addEventListener("keydown", (event) => this.key(event));
    this.finder();
    this.sentences();
    press("theme", () => this.switchTheme());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    const small = window.matchMedia("(max-width: 800px)");
    get("model").open = !small.matches;
    small.addEventListener("change", () => (get("model").open = !small.matches));
    let waiting = 0;
    window.addEventListener("resize", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => this.drawAll());
    });
    this.themeButton();
  }

  key(event) {
    const typing = event.target.closest("input:not([type=range]), select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const onSlider = event.target === get("slider");
    const actions = {
      ArrowRight: () => this.show(this.at + 1), ArrowLeft: () => this.show(this.at - 1),
      Home: () => this.show(0), End: () => this.show(this.page.scenes.length - 1),
      f: () => this.show(this.begin.forward ?? 0), b: () => this.show(this.begin.backward ?? this.at),
    };
    if (event.shiftKey) Object.assign(actions, { ArrowRight: () => this.layer(1), ArrowLeft: () => this.layer(-1) });
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || (onSlider && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    action();
  }

  finder() {
    const names = new Map();
    this.page.scenes.forEach((scene, i) => scene.outputs.forEach((o) => names.set(o.name, i)));
    const find = get("find");
    find.addEventListener("focus", () => {
      if (!get("names").children.length) get("names").append(...[...names.keys()].map((n) => element("option", { value: n })));
    });
    find.addEventListener("change", () => {
      const wanted = find.value.trim();
      const name = names.has(wanted) ? wanted : [...names.keys()].find((n) => n.includes(wanted));
      if (!wanted || !name) return;
      find.blur();  // so that the arrow keys step on
      this.show(names.get(name));
    });
  }

  sentences() {
    if (this.batch < 2) return;
    get("sentences").hidden = false;
    for (let i = 0; i < this.batch; i++) get("sentence").append(element("option", { value: i }, String(i + 1)));
    get("sentence").addEventListener("change", (event) => {
      this.sentence = Number(event.target.value);
      this.drawAll();
    });
  }

  switchTheme() {
    document.documentElement.dataset.theme = this.theme() === "dark" ? "light" : "dark";
    this.themeButton();
    this.redraw();
  }

  themeButton() {
    get("theme").setAttribute("aria-pressed", String(this.theme() === "dark"));
  }

  redraw() {
    this.themeButton();
    this.drawAll();
  }

  // To where the next layer begins, or the layer before.
  layer(direction) {
    const { scenes } = this.page;
    const here = (i) => `${scenes[i].phase} ${scenes[i].module}`;
    let i = this.at;
    if (direction < 0) while (i > 0 && here(i - 1) === here(this.at)) i--;
    if (direction > 0 || i === this.at) {
      i += direction;
      while (i > 0 && i < scenes.length && here(i) === here(i - direction)) i += direction;
      if (direction < 0) while (i > 0 && here(i - 1) === here(i)) i--;
    }
    this.show(i);
  }

  // To the first scene of a layer, in the phase on view if it has one there.
  visit(fits) {
    const { scenes } = this.page;
    const phase = scenes[this.at].phase;
    const find = (wanted) => scenes.findIndex((s) => fits(s) && (wanted === null || s.phase === wanted));
    const i = find(phase) >= 0 ? find(phase) : find(null);
    if (i >= 0) this.show(i);
  }

  // ---- a scene

  show(i, spoken = true) {
    const { scenes } = this.page;
    this.at = Math.max(0, Math.min(scenes.length - 1, i));
    const scene = scenes[this.at];
    const slider = get("slider");
    slider.value = this.at;
    const where = this.path(scene.module);
    const text = `Step ${this.at + 1} of ${scenes.length}, ${scene.phase}: ${where}, ${scene.title}`;
    slider.setAttribute("aria-valuetext", text);
    get("count").textContent = `Step ${this.at + 1} of ${scenes.length} · ${PHASES[scene.phase].toLowerCase()}`;
    get("where").textContent = `: ${where}`;
    if (spoken) get("live").textContent = text;
    for (const [id, end] of [["first", 0], ["back", 0], ["layer-back", 0], ["next", 1], ["layer-next", 1], ["last", 1]]) {
      get(id).setAttribute("aria-disabled", String(this.at === (end ? scenes.length - 1 : 0)));
    }
    document.querySelectorAll("#phases button").forEach((b) =>
      b.setAttribute("aria-pressed", String(b.dataset.phase === scene.phase)));
    document.body.dataset.phase = scene.phase;
    this.picture.mark(scene);
    this.fill(scene);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.address(), 300);
  }

  // The step in the page's address, once the reader has come to rest: a link to it, and where a reload goes on.
  address() {
    if (!/^(file|https?):$/.test(window.location.protocol)) return;
    window.history.replaceState(null, "", `#step=${this.at + 1}`);
  }

  path(module) {
    return module === "" ? this.page.modules[""]?.kind || "model" : module.replace(/\./g, " › ");
  }

  fill(scene) {
    const root = get("scene");
    const focused = root.contains(document.activeElement);
    root.hidden = false;
    this.maps = [];
    root.replaceChildren(this.crumbs(scene), this.heading(scene), this.statement(scene), this.inside(scene),
      this.arrays(scene));
    if (focused) get("title").focus();  // what had the focus is gone with the scene before
    this.drawAll();
  }

  // All widths first: to read one after a drawing would lay out the page anew.
  drawAll() {
    const widths = this.maps.map((map) => map.element.clientWidth);
    this.maps.forEach((map, k) => map.draw(widths[k]));
  }

  crumbs(scene) {
    const nav = element("nav", { class: "crumbs", "aria-label": "Layer" });
    const parts = scene.module === "" ? [] : scene.module.split(".");
    const names = ["", ...parts.map((_, k) => parts.slice(0, k + 1).join("."))];
    names.forEach((name, k) => {
      if (name === "loss" || name === "" || name in this.page.modules) {
        const label = name === "" ? this.path("") : this.short(name);
        const button = element("button", { type: "button", "aria-current": k === names.length - 1 ? "location" : null }, label);
        button.addEventListener("click", () => this.visit((s) => s.module === name));
        nav.append(button);
      }
    });
    return nav;
  }

  // A layer's own name within the layer around it: "layers.0", "cross_attention".
  short(name) {
    const around = Object.keys(this.page.modules).filter((m) => m && name.startsWith(`${m}.`));
    const nearest = around.sort((a, b) => b.length - a.length)[0];
    return nearest ? name.slice(nearest.length + 1) : name;
  }

  heading(scene) {
    const badge = this.page.badges[scene.module];
    const box = element("div", { class: "heading" }, element("h2", { id: "title", tabindex: "-1" }, scene.title),
      element("p", { class: "kind" }, `${scene.kind}.${scene.method}`));
    if (badge) {
      const { sign, text } = BADGES[badge.status];
      const error = badge.error === null || badge.error === undefined ? "" : `, off by ${badge.error.toExponential(0)}`;
      box.append(element("details", { class: `badge ${badge.status}` },
        element("summary", {}, `${sign} ${text}${error}`), element("p", {}, sentence(badge.text))));
    }
    return box;
  }

  statement(scene) {
    const box = element("div", { class: "statement" });
    if (scene.formula) box.append(element("p", { class: "formula" }, scene.formula));
    const shapes = this.shapes(scene);
    if (shapes) box.append(element("p", { class: "shapes" }, shapes));
    if (scene.words) box.append(element("p", { class: "words" }, scene.words));
    if (scene.enters) {
      const names = scene.outputs.map((o) => o.variable).join(", ");
      const on = this.at === 0 ? " Press → or Next: all that the model does follows, a statement at a time." : "";
      box.append(element("p", { class: "words" }, `The call begins: ${scene.method} of this ${scene.kind} is given ${names}.${on}`));
    }
    if (scene.source) {
      box.append(element("p", { class: "source" }, element("code", {}, scene.source), element("span", {}, ` ${scene.place}`)));
    }
    return box;
  }

  // The shapes put into the statement: "(1, 4, 13, 16) · (1, 4, 16, 10) → (1, 4, 13, 10)".
  shapes(scene) {
    if (scene.enters || !scene.inputs.length) return "";
    const views = this.page.views;
    const inputs = scene.inputs.map((x) => views[x.view].shape);
    const text = (tree) => {
      if (tree === null) return [...new Set(inputs.map(tuple))].join(", ");
      if (tree[0] === "in") return tuple(inputs[tree[1]]);
      if (tree[0] === "product") return `${text(tree[2])} · ${text(tree[3])}`;
      if (tree[0] === "move") return tuple(tree[1]);
      if (tree[0] === "rows") return `${text(tree[2])} at ${text(tree[3])}`;
      const parts = tree.slice(2).flatMap(nodes);
      return [...new Set(parts.map(text))].join(", ");
    };
    const out = scene.outputs.map((o) => `${text(o.tree)} → ${tuple(views[o.view].shape)}`);
    return [...new Set(out)].join("   ");
  }

  // The layers inside the one on view, or beside it.
  inside(scene) {
    const { modules } = this.page;
    let around = scene.module;
    while (around && !(modules[around]?.inside.length)) around = Object.keys(modules)
      .filter((m) => m === "" || around.startsWith(`${m}.`)).sort((a, b) => b.length - a.length)[0] ?? "";
    const parts = modules[around]?.inside || [];
    if (!parts.length || scene.module === "loss") return element("div");
    const nav = element("nav", { class: "inside", "aria-label": `Inside ${this.path(around)}` },
      element("span", {}, `Inside ${around === "" ? this.path("") : this.short(around)}:`));
    for (const name of scene.phase === "backward" ? [...parts].reverse() : parts) {
      const now = within(scene.module, name);
      const button = element("button", { type: "button", "aria-current": now ? "true" : null }, name.slice(around ? around.length + 1 : 0));
      button.addEventListener("click", () => this.visit((s) => within(s.module, name)));
      nav.append(button);
    }
    return nav;
  }

  arrays(scene) {
    const views = this.page.views;
    const origins = new Origins(this.numbers, scene.inputs.map((x) => views[x.view]));
    const inputs = [];
    const makes = element("section", { class: "makes", "aria-label": scene.enters ? "Given" : "Made" },
      element("h3", {}, scene.enters ? "Given" : "Makes"));
    for (const output of scene.outputs) {
      const from = element("p", { class: "from" });
      const pair = element("div", { class: "pair" });
      let partner = null;
      const map = new Heatmap(this, output.variable, views[output.view], {
        move: (flat) => {
          const found = flat === null || output.tree === null ? new Map() : origins.of(output.tree, flat);
          inputs.forEach((input, k) => input.mark(found.get(k) || null));
          partner?.mark(flat === null ? null : new Set([flat]));
          from.textContent = flat === null ? "" : this.says(scene, output, found);
        },
      });
      pair.append(map.element);
      map.reading.after(from);
      this.maps.push(map);
      if (output.partner) {
        const [name, view] = output.partner;
        partner = new Heatmap(this, `${this.last(name)}, the value it belongs to`, views[view], { move: (flat) => map.mark(flat === null ? null : new Set([flat])) });
        partner.element.classList.add("partner");
        pair.append(partner.element);
        this.maps.push(partner);
      }
      makes.append(pair);
    }
    if (!scene.inputs.length) return element("div", { class: "arrays one" }, makes);
    const reads = element("section", { class: "reads", "aria-label": "Read" }, element("h3", {}, "Reads"));
    for (const input of scene.inputs) {
      const map = new Heatmap(this, this.last(input.name), views[input.view], { move: () => {} });
      inputs.push(map);
      this.maps.push(map);
      reads.append(map.element);
    }
    const broad = this.maps.some((map) => map.broad);
    return element("div", { class: broad ? "arrays wide" : "arrays" }, reads, makes);
  }

  // "decoder.layers.0.norm1.x.2" -> "x"; with the layer where that is another one.
  last(name) {
    const scene = this.page.scenes[this.at];
    const own = scene.module && name.startsWith(`${scene.module}.`) ? name.slice(scene.module.length + 1) : name;
    return own.replace(/\.\d+$/, (n) => (/[A-Za-z_]\.\d+$/.test(own) && !own.includes("layers") ? "" : n));
  }

  // Where the entry under the cursor comes from, in words.
  says(scene, output, found) {
    if (scene.enters) return "";
    if (output.tree === null) return scene.inputs.length ? "Made by the statement above." : "";
    const words = scene.inputs.map((input, k) => {
      const view = this.page.views[input.view];
      return found.has(k) ? inWords(this.last(input.name), view, found.get(k), (axis, i) => this.labels(view, axis, null, i)) : null;
    }).filter(Boolean);
    if ([...found.values()].every((set) => !set.size)) return "From nothing in this statement.";
    return words.length ? `From ${words.join(output.tree[0] === "product" ? " · " : ", ")}` : "";
  }
}

function tuple(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

function within(module, name) {
  return module === name || module.startsWith(`${name}.`);
}

function nodes(x) {
  if (!Array.isArray(x) || !x.length) return [];
  return typeof x[0] === "string" ? [x] : x.filter((y) => Array.isArray(y));
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    get("loading").textContent = "This browser cannot unpack the numbers: any of 2023 or later can.";
    return;
  }
  const unpack = (part) => inflate(part.textContent, Number(part.dataset.size));
  const [text, planes] = await Promise.all([unpack(get("document")), unpack(get("arrays"))]);
  const page = JSON.parse(new TextDecoder().decode(text));
  window.viewer = new Viewer(page, new Numbers(planes, page.size));
  get("loading").remove();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  get("loading").textContent = `The page is damaged: ${error.message}`;
  throw error;
});
