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
    page.views.forEach((view, k) => (view.number = k));
    Object.assign(this, { page, numbers, at: 0, sentence: 0, maps: [], trail: new Trail(page), colours: palette() });
    this.batch = Math.max(1, ...["src", "tgt"].map((side) => page.tokens[side].length));
    const shapes = page.scenes.filter((s) => s.enters && s.module === "").flatMap((s) => s.outputs);
    const first = shapes.length ? page.views[shapes[0].view] : { shape: [] };
    if (first.shape.length >= (first.kind === "int" ? 2 : 3)) this.batch = first.shape[0];
    this.begin = {};
    page.scenes.forEach((scene, i) => (this.begin[scene.phase] ??= i));
    this.controls();
    this.picture = new Picture(this);
    this.show(this.asked() ?? 0, false);
  }

  // ---- what things are called

  theme() {
    return document.documentElement.dataset.theme;
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

  // The patches that stand along an axis, each as a small canvas, null for the class token; null for other axes.
  stamps(view, axis) {
    const { patches, tokens } = this.page;
    const side = view.axes?.[axis];
    if (!patches || !tokens[side]) return null;
    const images = this.page.views[patches.view];
    const one = Math.min(this.sentence, images.shape[0] - 1);
    const key = `${side} ${one}`;
    this.stamped ??= new Map();
    if (!this.stamped.has(key)) {
      const all = stampsOf(this.numbers.values(images), images.shape, one, patches);
      this.stamped.set(key, tokens[side][0].length > all.length ? [null, ...all] : all);
    }
    return this.stamped.get(key);
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
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (!this.chosen) this.setTheme(event.matches ? "dark" : "light");
    });
    window.addEventListener("beforeprint", () => this.print());
    window.addEventListener("afterprint", () => this.setTheme(this.screen));
    window.addEventListener("popstate", () => this.show(this.asked() ?? this.at));  // also when the address is edited
    get("pin").querySelector("button").addEventListener("click", () => this.pin(null, null));
    const small = window.matchMedia("(max-width: 800px)");
    get("model").open = !small.matches;
    small.addEventListener("change", () => (get("model").open = !small.matches));
    get("model").addEventListener("toggle", () => this.drawAll());
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
      Escape: () => this.trail.pin && this.pin(null, null), m: () => this.jump("made"), u: () => this.jump("used"), g: () => this.jump("gradient"),
    };
    if (event.shiftKey) Object.assign(actions, { ArrowRight: () => this.layer(1), ArrowLeft: () => this.layer(-1) });
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || (onSlider && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    action();
  }

  finder() {
    const names = this.trail.made;
    const find = get("find");
    find.addEventListener("focus", () => {
      if (!get("names").children.length) get("names").append(...[...names.keys()].map((n) => element("option", { value: n })));
    });
    find.addEventListener("change", () => {
      const wanted = find.value.trim();
      if (!wanted) return;
      const found = this.named(wanted);
      get("find").setCustomValidity(found === null ? "No step is called so." : "");
      if (found === null) return void find.reportValidity();
      find.blur();  // so that the arrow keys step on
      this.show(found);
    });
  }

  // The number of the step of that name, of one whose name has this in it, or of that number; null if there is none.
  named(text) {
    const names = this.trail.made;
    const count = this.page.scenes.length;
    if (/^\d+$/.test(text)) return Math.max(1, Math.min(Number(text), count)) - 1;
    const name = names.has(text) ? text : [...names.keys()].find((n) => n.includes(text));
    return name === undefined ? null : names.get(name);
  }

  // The step that the page's address asks for, by number or by name; null if it asks for none.
  asked() {
    const found = /^#step=(.+)$/.exec(window.location.hash);
    return found ? this.named(decodeURIComponent(found[1])) : null;
  }

  sentences() {
    if (this.batch < 2) return;
    if (this.page.patches) get("sentences").firstChild.textContent = "Image ";
    get("sentences").hidden = false;
    for (let i = 0; i < this.batch; i++) get("sentence").append(element("option", { value: i }, String(i + 1)));
    get("sentence").addEventListener("change", (event) => {
      this.sentence = Number(event.target.value);
      this.drawAll();
    });
  }

  switchTheme() {
    this.chosen = true;
    this.setTheme(this.theme() === "dark" ? "light" : "dark");
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.themeButton();
    this.colours = palette();
    this.drawAll();
  }

  themeButton() {
    get("theme").setAttribute("aria-pressed", String(this.theme() === "dark"));
  }

  // On paper the step is light.
  print() {
    this.screen = this.theme();
    this.setTheme("light");
  }

  // ---- following one number

  // Pin an entry of a map, so that it stays in view from step to step; with null let go of it.
  pin(map, flat) {
    this.trail.pin = map === null || flat === null ? null
      : { key: this.trail.key(map.view.number), flat: map.toWhole(flat), text: map.say(flat) };
    this.maps.forEach((other) => {
      const pinned = this.trail.pinned(other.view.number);
      other.pinned = pinned === null || other.toKept(pinned) < 0 ? null : other.toKept(pinned);
      other.marked = null;
      if (other.cursor === null) other.rest();
      other.draw();
    });
    this.tell();
    get("live").textContent = this.trail.pin ? `Pinned: ${this.trail.pin.text}` : "Let go.";
  }

  tell() {
    const { pin } = this.trail;
    get("pin").hidden = pin === null;
    if (pin === null) return;
    get("pin").querySelector("span").textContent = `Following ${pin.text}`;
    this.maps.filter((map) => map.pinned !== null).forEach((map) => map.tell());
  }

  // By key: to where the array in hand was made, where it is used next, to its gradient, or from that to its value.
  jump(where) {
    const inHand = this.maps.find((map) => map.field === document.activeElement);
    const made = this.maps.filter((map) => map.element.closest(".makes"));
    const map = inHand || made.find((m) => m.pinned !== null) || this.maps.find((m) => m.pinned !== null) || made[0];
    const trail = map.on.trail;
    const flat = map.cursor ?? map.pinned;
    if (where === "used" && flat !== null && map.element.closest(".reads") && this.through(map, flat, Boolean(inHand))) return;
    const later = trail.used?.find((i) => i > this.at);
    const found = { made: trail.made, used: later, gradient: trail.gradient ?? trail.value }[where] ?? null;
    if (found === null) {
      get("live").textContent = `${map.name}: ${{ made: "made here", used: "not used later on", gradient: "no gradient" }[where]}`;
      return;
    }
    if (flat !== null) this.pin(map, flat);
    this.follow(found, where === "gradient" ? map.on.trail.other : null, Boolean(inHand));
  }

  // From an entry of what a statement reads to the first entry of what it makes of it; of several results to that which
  // is used first. False if that is not known.
  through(input, flat, focused) {
    if (flat !== input.pinned) this.pin(input, flat);
    const next = (map) => map.on.trail.used.find((i) => i > this.at) ?? Infinity;
    const results = this.maps.filter((map) => map.element.closest(".makes") && map.marked?.size && map.on.trail.used);
    const [result] = results.sort((a, b) => next(a) - next(b));
    if (!result) return false;
    this.pin(result, result.beginning(result.s));
    if (focused) result.field.focus();
    return true;
  }

  // To another step by a link: the way back is the browser's. `other`: the array there that takes over the pin.
  follow(i, other = null, focused = false) {
    this.address(true);
    this.show(i);
    this.address();
    const map = other && this.maps.find((m) => m.on.trail.name === other);
    if (map && this.trail.pin) this.pin(map, map.toKept(this.trail.pin.flat));
    const hand = map || this.maps.find((m) => m.pinned !== null);
    if (focused && hand) hand.field.focus();
    else get("title").focus({ preventScroll: true });
    hand?.element.scrollIntoView({ block: "nearest" });
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
  address(leaving = false) {
    if (!/^(file|https?):$/.test(window.location.protocol)) return;
    clearTimeout(this.waiting);
    window.history.replaceState(null, "", `#step=${this.at + 1}`);
    if (leaving) window.history.pushState(null, "", window.location.hash);
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
    this.tell();
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
      const counts = Object.entries(scene.counts).map(([name, k]) => `, ${name} = ${k}`).join("");
      box.append(element("p", { class: "source" }, element("code", {}, scene.source), element("span", {}, ` ${scene.place}${counts}`)));
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
    const [inputs, outputs] = [[], []];
    const makes = element("section", { class: "makes", "aria-label": scene.enters ? "Given" : "Made" },
      element("h3", {}, scene.enters ? "Given" : "Makes"));
    for (const output of scene.outputs) {
      const from = element("p", { class: "from" });
      const pair = element("div", { class: "pair" });
      let partner = null;
      const map = new Heatmap(this, output.variable, views[output.view], {
        trail: this.trailOf(output.name, output.view, output.partner?.[0]),
        move: (flat) => {
          const found = flat === null || output.tree === null ? new Map() : origins.of(output.tree, flat);
          inputs.forEach((input, k) => input.mark(found.get(k) || null));
          partner?.mark(flat === null ? null : new Set([flat]));
          outputs.forEach((other) => other.map !== map && other.map.marked && other.map.mark(null));
          from.textContent = flat === null ? "" : this.says(scene, output, found);
        },
      });
      outputs.push({ map, from, tree: output.tree });
      pair.append(map.element);
      map.reading.after(from);
      this.maps.push(map);
      if (output.partner) {
        const [name, view] = output.partner;
        partner = new Heatmap(this, `${this.last(name)}, the value it belongs to`, views[view], {
          trail: { ...this.trailOf(name, view), gradient: null, other: null },
          move: (flat) => map.mark(flat === null ? null : new Set([flat])),
        });
        partner.element.classList.add("partner");
        pair.append(partner.element);
        this.maps.push(partner);
      }
      makes.append(pair);
    }
    if (!scene.inputs.length) return element("div", { class: "arrays one" }, makes);
    const reads = element("section", { class: "reads", "aria-label": "Read" }, element("h3", {}, "Reads"));
    scene.inputs.forEach((input, k) => {
      const map = new Heatmap(this, this.called(input), views[input.view], {
        trail: this.trailOf(input.name, input.view),
        move: (flat) => flat !== null && flat === this.trail.pinned(input.view) && this.reach(outputs, origins, k, map, flat),
      });
      inputs.push(map);
      this.maps.push(map);
      reads.append(map.element);
    });
    const broad = this.maps.some((map) => map.broad);
    return element("div", { class: broad ? "arrays wide" : "arrays" }, reads, makes);
  }

  // Where an array was made and is used, its gradient, and the name of that; of a gradient `value`, where its value is.
  trailOf(name, view, partner = null) {
    const trail = { name, ...this.trail.of(name, view, this.at), value: null, other: null };
    if (partner !== null) Object.assign(trail, { value: this.trail.made.get(partner) ?? null, other: partner });
    else if (trail.gradient !== null) {
      const there = this.page.scenes[trail.gradient].outputs.find((o) => o.partner?.[0] === name);
      trail.other = there.name;
    }
    return trail;
  }

  // Mark in the results what a pinned entry of an input goes into.
  reach(outputs, origins, k, input, flat) {
    for (const { map, from, tree } of outputs) {
      const set = tree === null ? null : origins.reached(tree, k, flat);
      if (!set) continue;
      if (map.pinned === null) map.mark(set);
      const words = set.size ? inWords(map.name, map.view, set, (axis, i) => this.labels(map.view, axis, null, i)) : "nothing here";
      if (map.cursor === null && map.pinned === null) from.textContent = `${input.name} goes into ${words}`;
    }
  }

  // "decoder.layers.0.norm1.x.2" -> "x"; with the layer where that is another one.
  last(name) {
    const scene = this.page.scenes[this.at];
    const own = scene.module && name.startsWith(`${scene.module}.`) ? name.slice(scene.module.length + 1) : name;
    return own.replace(/\.\d+$/, (n) => (/[A-Za-z_]\.\d+$/.test(own) && !own.includes("layers") ? "" : n));
  }

  // What the statement calls an input: by its name, or by its place in a larger array, as states[t].
  called(input) {
    return input.shown || this.last(input.name);
  }

  // Where the entry under the cursor comes from, in words.
  says(scene, output, found) {
    if (scene.enters && output.tree === null) return "";
    if (output.tree === null) return scene.inputs.length ? "Made by the statement above." : "";
    const words = scene.inputs.map((input, k) => {
      const view = this.page.views[input.view];
      return found.has(k) ? inWords(this.called(input), view, found.get(k), (axis, i) => this.labels(view, axis, null, i)) : null;
    }).filter(Boolean);
    if ([...found.values()].every((set) => !set.size)) return "From nothing in this statement.";
    return words.length ? `From ${words.join(output.tree[0] === "product" ? " · " : ", ")}` : "";
  }
}

function tuple(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

// The patches of image number `one`, as small canvases: in colour where there are three channels, else in greys.
function stampsOf(values, [, channels, height, width], one, { size, rows, columns }) {
  const image = values.subarray(one * channels * height * width, (one + 1) * channels * height * width);
  const [low, high] = [Math.min(...image), Math.max(...image)];
  const pixel = (c, i, j) => image[(c * height + i) * width + j];
  return Array.from({ length: rows * columns }, (_, n) => {
    const canvas = element("canvas", { width: size, height: size });
    const data = new ImageData(size, size);
    for (let k = 0; k < size * size; k++) {
      const at = [Math.floor(n / columns) * size + Math.floor(k / size), (n % columns) * size + (k % size)];
      const shades = channels === 3 ? [0, 1, 2].map((c) => 255 - grey(pixel(c, ...at), low, high)[0]) : grey(pixel(0, ...at), low, high);
      data.data.set([...shades, 255], 4 * k);
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    return canvas;
  });
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
