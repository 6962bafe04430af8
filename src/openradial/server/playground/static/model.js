// The third tab: images, rows or texts for the model that the playground was started with.

import { ask, find, make, percent, rounded } from "./dom.js";
import { isUnknown, rateSlider } from "./rate.js";
import { startSentences } from "./sentences.js";

const AT_ONCE = 4; // images on their way
const panel = find("#model");
const answers = find("#answers");
const form = find("#row");
const drop = find("#drop");

let model = null;
let rate = () => 0.05;
let decideSentence = () => {};

export async function startModel() {
  try {
    model = await (await ask("/play/model")).json();
  } catch (error) {
    find("#model-lead").textContent = `The model cannot be asked: ${error.message}.`;
    return;
  }
  rate = rateSlider(find("#model-rate"), find("#model-rate-value"), model.false_reject_rate ?? 0.05, decide);
  find("#model-rate").disabled = model.false_reject_rate === null;
  introduce();
  if (model.kind === "images") acceptImages();
  else if (model.kind === "texts") decideSentence = startSentences(rate);
  else acceptRows();
}

function introduce() {
  const many = model.classes.length;
  const some = model.classes.slice(0, 12).join(", ") + (many > 12 ? ", …" : "");
  const lead = find("#model-lead");
  const what = `${many} known classes (${some}), ${model.network} with ${model.parameters.toLocaleString("en")} parameters.`;
  if (model.title) lead.replaceChildren(make("strong", { textContent: model.title }), `: ${what}`);
  else lead.replaceChildren(`The digit classifier that comes with openradial: ${what} To try your own model, run `, make("code", { textContent: "openradial play model/" }), ".");
}

function acceptImages() {
  drop.hidden = false;
  find("#drop-note").textContent = `Each becomes ${model.shape.slice(1).join(" × ")} pixels, as in training. Nothing leaves this computer.`;
  const files = find("#files");
  files.onchange = () => {
    predictFiles([...files.files]);
    files.value = "";
  };
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    panel.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragenter" || name === "dragover");
      if (name === "drop") predictFiles([...event.dataTransfer.files]);
    });
  }
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
}

async function predictFiles(files) {
  const waiting = files.map((file) => [file, answer(file.name, URL.createObjectURL(file))]);
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const [file, entry] = next;
      await predict(entry, { body: file, headers: { "Content-Type": file.type || "application/octet-stream" } });
    }
  };
  say(`Asking about ${files.length} image${files.length === 1 ? "" : "s"}.`);
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  summarise(files.length);
}

const FORMS = {
  table: () => model.fields.map(column),
  points: () => [long(`${model.shape[0]} numbers, separated by commas`, Array(model.shape[0]).fill(0).join(", "))],
  sequences: () => [long(`One step per line, ${model.shape[0]} numbers separated by commas`, "")],
};
const READERS = {
  table: () => Object.fromEntries(model.fields.map(({ name }, i) => [name, form.elements[i].value])),
  points: () => numbers(form.elements[0].value),
  sequences: () => form.elements[0].value.trim().split("\n").map(numbers),
};
const numbers = (text) => text.split(",").map(Number);

function acceptRows() {
  form.hidden = false;
  form.replaceChildren(...FORMS[model.kind](), make("button", { className: "main", textContent: "Ask" }));
  form.onsubmit = async (event) => {
    event.preventDefault();
    const value = READERS[model.kind]();
    const text = typeof value === "string" ? value : Object.values(value).join(", ");
    const body = JSON.stringify({ inputs: [value] });
    await predict(answer(text), { body, headers: { "Content-Type": "application/json" } });
    summarise(1);
  };
}

function column({ name, usual, words }) {
  if (!words) return make("label", {}, name, make("input", { type: "text", inputMode: "decimal", value: usual }));
  return make("label", {}, name, make("select", {}, ...words.map((word) => make("option", { textContent: word }))));
}

function long(name, value) {
  return make("label", { className: "wide" }, name, make("textarea", { rows: 4, value }));
}

function answer(what, picture = null) {
  const entry = make("li", { className: "card" });
  if (picture) entry.append(make("img", { src: picture, alt: "" }));
  const lines = [
    make("p", { className: "what", textContent: what.slice(0, 120) }),
    make("p", { className: "verdict", textContent: "…" }),
    make("p", { className: "small" }),
  ];
  entry.append(make("div", {}, ...lines));
  answers.prepend(entry);
  return entry;
}

async function predict(entry, options) {
  try {
    const response = await ask("/v1/predict", { method: "POST", ...options });
    entry.said = (await response.json()).predictions[0];
  } catch (error) {
    entry.said = { error: error.message };
  }
  show(entry);
}

function show(entry) {
  const said = entry.said;
  if (!said) return;
  const [verdict, small] = [find(".verdict", entry), find(".small", entry)];
  if (said.error) {
    verdict.textContent = "Not read";
    small.textContent = said.error;
    small.dataset.error = "";
    return;
  }
  const unknown = isUnknown(said.p_value, rate());
  entry.toggleAttribute("data-unknown", unknown);
  verdict.textContent = unknown ? "Unknown" : said.nearest;
  const parts = [`${said.nearest} with ${percent(said.probability)}`];
  if (said.distance !== null) parts.push(`distance ${rounded(said.distance)}`);
  if (said.p_value !== null) parts.push(`p-value ${rounded(said.p_value)}`);
  small.replaceChildren(...parts.flatMap((part) => [make("span", { className: "part", textContent: part }), " "]));
}

function decide() {
  decideSentence();
  for (const entry of answers.children) show(entry);
  if (answers.children.length) summarise(answers.children.length);
}

function summarise(count) {
  const entries = [...answers.children].slice(0, count);
  if (count === 1) say(`${find(".what", entries[0]).textContent}: ${find(".verdict", entries[0]).textContent}.`);
  else say(`Of ${count}, ${entries.filter((entry) => entry.hasAttribute("data-unknown")).length} are unknown.`);
}

const say = (text) => (find("#model-said").textContent = text);
