"use strict";
// From step to step after one array: where it was made, where it is used, where its gradient is; and one entry of it
// that the reader has pinned.

class Trail {
  // page: the description of all scenes, see page.py.
  constructor(page) {
    this.page = page;
    this.made = new Map();  // name -> number of the scene that makes it
    this.used = new Map();  // name -> numbers of the scenes that read it
    this.gradient = new Map();  // name of a value -> number of the scene with its gradient
    this.same = new Map();  // place of the numbers -> the outputs that hold them, in order
    this.pin = null;
    page.scenes.forEach((scene, i) => {
      for (const { name, view, partner } of scene.outputs) {
        const copies = this.entry(this.same, this.key(view), []);
        if (scene.enters) this.given(scene, i, copies);
        copies.push({ name, scene: i, module: scene.module });
        this.made.set(name, i);
        if (partner) this.gradient.set(partner[0], i);
      }
      for (const { name } of scene.inputs) this.entry(this.used, name, []).push(i);
    });
  }

  entry(map, key, value) {
    if (!map.has(key)) map.set(key, value);
    return map.get(key);
  }

  // Two arrays with the same numbers are the same to the trail, whatever their shapes: one was handed on as the other.
  key(view) {
    const { at, shape } = this.page.views[view];
    return `${at} ${shape.reduce((a, b) => a * b, 1)}`;
  }

  // A call that is given what the layer around it has, or what a layer before it returned: that array is used here.
  given(scene, i, copies) {
    const before = copies.filter((c) => c.scene !== i);
    const near = before.filter((c) => {
      const { enters, module } = this.page.scenes[c.scene];
      const returned = !enters && this.page.scenes[c.scene + 1].module !== module;
      return module === "" || scene.module.startsWith(`${module}.`) || (returned && around(module) === around(scene.module));
    });
    const source = (near.length ? near : before).pop();
    // One array may be query, key and value at once.
    copies.filter((c) => c.scene === source?.scene).forEach((c) => this.entry(this.used, c.name, []).push(i));
  }

  // {made, used, gradient, value}: numbers of scenes, as seen from scene i.
  of(name, view, i) {
    const copies = this.same.get(this.key(view)) || [];
    const before = copies.filter((c) => c.scene < i);
    const own = this.made.get(name);
    const made = own !== undefined && own < i ? own : before.length && own === i ? before[before.length - 1].scene : null;
    const used = [...new Set(this.used.get(name) || [])].filter((j) => j !== i && j > (own ?? -1));
    return { made, used, gradient: this.gradient.get(name) ?? null };
  }

  pinned(view) {
    return this.pin && this.pin.key === this.key(view) ? this.pin.flat : null;
  }
}

// The layer around a layer, by its name.
function around(module) {
  return module.slice(0, Math.max(0, module.lastIndexOf(".")));
}
