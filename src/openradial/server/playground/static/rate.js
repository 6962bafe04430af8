// A slider for the false-reject rate, over rates that one would ask for.

import { percent } from "./dom.js";

const USUAL = [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5];

// Begins at `start`, calls `changed` when it is moved, and returns a function that tells the rate.
export function rateSlider(input, output, start, changed) {
  const rates = [...new Set([...USUAL, start])].sort((a, b) => a - b);
  const rate = () => rates[input.value];
  const say = () => {
    output.textContent = percent(rate());
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.max = rates.length - 1;
  input.value = rates.indexOf(start);
  input.oninput = () => {
    say();
    changed();
  };
  say();
  return rate;
}

// Small p-values are unknown; a model that rejects nothing has none.
export const isUnknown = (pValue, rate) => pValue !== null && pValue <= rate;
