// Small words for the page: finding and making elements, numbers as text, asking the server.

export const find = (selector, root = document) => root.querySelector(selector);

export function make(tag, facts = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "<\u00a00.1\u00a0%";
  if (share < 1 && share > 0.999) return ">\u00a099.9\u00a0%";
  const digits = share < 0.1 || share > 0.98 ? 1 : 0;
  return `${Number((100 * share).toFixed(digits))}\u00a0%`;
}

export function rounded(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return "< 0.001";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return value.toPrecision(value < 0.1 ? 2 : 3);
}

export async function ask(path, options = {}) {
  const response = await fetch(path, options);
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error || `the server answered ${response.status}`);
}

// Runs one call at a time; of those that come meanwhile only the last is made.
export function latest(call) {
  let running = false;
  let next = null;
  return async (...values) => {
    next = values;
    if (running) return;
    running = true;
    try {
      while (next) {
        const now = next;
        next = null;
        await call(...now);
      }
    } finally {
      running = false;
    }
  };
}

export function later(call, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function rgb(name) {
  const hex = colour(name).slice(1);
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// A canvas with as many pixels as the screen has, and a context that counts in the page's.
export function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width, height };
}
