// The page: tabs, colours, and the start of each part when it is first shown.

import { find } from "./dom.js";
import { startDrawing } from "./draw.js";
import { startModel } from "./model.js";
import { startSpiral } from "./spiral.js";

const STARTS = { spiral: startSpiral, draw: startDrawing, model: startModel };
const tabs = [...document.querySelectorAll("[role=tab]")];
const started = new Set();

// The tab that the address names; "#/spiral" is no place to scroll to.
function named() {
  return Object.keys(STARTS).find((name) => location.hash === `#/${name}`);
}

function choose(name, { focus = false } = {}) {
  for (const tab of tabs) {
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    find(`#${tab.getAttribute("aria-controls")}`).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  if (!started.has(name)) STARTS[name]();
  started.add(name);
  if (named() !== name) history.replaceState(null, "", `#/${name}`);
  document.dispatchEvent(new CustomEvent("tab", { detail: name }));
}

tabs.forEach((tab, place) => {
  tab.onclick = () => choose(tab.getAttribute("aria-controls"));
  tab.onkeydown = ({ key }) => {
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[key];
    if (to !== undefined) choose(tabs.at(to % tabs.length).getAttribute("aria-controls"), { focus: true });
  };
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const remembered = () => {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null; // a browser that keeps nothing
  }
};

function paint(isDark) {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  find("#theme").setAttribute("aria-pressed", isDark);
  document.dispatchEvent(new Event("theme"));
}

find("#theme").onclick = () => {
  const isDark = document.documentElement.dataset.theme !== "dark";
  try {
    localStorage.setItem("theme", isDark ? "dark" : "light");
  } catch {
    // it is forgotten with the page
  }
  paint(isDark);
};
dark.onchange = () => remembered() || paint(dark.matches);
paint(remembered() ? remembered() === "dark" : dark.matches);

addEventListener("hashchange", () => named() && choose(named()));
choose(named() ?? "spiral");
