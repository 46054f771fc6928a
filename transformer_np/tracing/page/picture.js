"use strict";
// The picture of the model beside the steps: which box is at work, and where a click leads.

const BADGES = {
  ok: { sign: "✓", text: "gradients right" }, parts: { sign: "✓", text: "parts right" },
  wrong: { sign: "✗", text: "gradients wrong" }, none: { sign: "–", text: "gradients not checked" },
};

class Picture {
  constructor(viewer) {
    this.viewer = viewer;
    const { boxes, stacks } = viewer.page;
    this.layerOf = Object.fromEntries(stacks.map((_, k) => [k, 0]));  // which layer of each stack is on view
    this.groups = [...document.querySelectorAll("#figure .box")];
    this.groups.forEach((group, k) => {
      const act = () => viewer.visit((s) => s.box === k && (s.layer === null || s.layer === this.layerOf[this.stackOf(k)]));
      group.addEventListener("click", act);
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        act();
      });
    });
    stacks.forEach((stack, k) => {
      if (stack.n < 2) return;
      const name = stack.pattern.replace(/\.?\{\}.*$/, "").replace(/\.?layers$/, "") || "layer";
      const row = element("div", { class: "layers", role: "group", "data-of": k, "aria-label": `${name}: layer` }, `${name} `);
      for (let i = 0; i < stack.n; i++) {
        const button = element("button", { type: "button", "data-stack": k, "data-layer": i }, String(i));
        const start = stack.pattern.replace("{}", i);
        button.addEventListener("click", () => viewer.visit((s) => within(s.module, start)));
        row.append(button);
      }
      get("layers").append(row);
    });
    this.stackOf = (k) => stacks.findIndex((s) => s.pattern === boxes[k].stack);
  }

  // Outline the box of a scene, with the layer that it is in and the badges of that layer.
  mark(scene) {
    const { boxes, stacks, badges } = this.viewer.page;
    stacks.forEach((stack, k) => {
      const pattern = new RegExp(`^${stack.pattern.replace(/\./g, "\\.").replace("{}", "(\\d+)")}(\\.|$)`);
      const match = pattern.exec(scene.module) || [null, scene.box !== null && this.stackOf(scene.box) === k ? scene.layer : null];
      if (match[1] !== null && match[1] !== undefined) this.layerOf[k] = Number(match[1]);
      document.querySelector(`.layers[data-of="${k}"]`)?.classList.toggle("active", match[1] !== null && match[1] !== undefined);
      document.querySelectorAll(`[data-stack="${k}"]`).forEach((part) => {
        const now = part.dataset.layer === undefined ? match[0] : Number(part.dataset.layer) === this.layerOf[k];
        part.classList.toggle("now", Boolean(now));
        if (part.tagName === "BUTTON") part.setAttribute("aria-pressed", String(Boolean(now)));
      });
    });
    this.groups.forEach((group, k) => {
      const now = scene.box === k;
      group.classList.toggle("now", now);
      if (now) group.setAttribute("aria-current", "step");
      else group.removeAttribute("aria-current");
      const layer = this.layerOf[this.stackOf(k)] ?? 0;
      const badge = badges[boxes[k].covers[0]?.replace("{}", layer)];
      const mark = group.querySelector(".mark");
      if (mark) {
        mark.textContent = badge ? BADGES[badge.status].sign : "";
        mark.dataset.status = badge ? badge.status : "";
      }
      group.setAttribute("aria-label", boxes[k].label + (badge ? `, ${BADGES[badge.status].text}` : ""));
    });
    get("model").dataset.phase = scene.phase;
    get("direction").textContent = scene.phase === "backward" ? "Backward: gradients flow down, the last layer first."
      : scene.phase === "loss" ? "Loss: how far the model is from what it should say." : "Forward: numbers flow up, layer by layer.";
  }
}
