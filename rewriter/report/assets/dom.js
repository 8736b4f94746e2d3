// What all scripts of the page use. What comes from the dump reaches the document as text only,
// never as markup.
"use strict";

function byId(id) {
  return document.getElementById(id);
}

const COMPARES = byId("timeline").dataset.compares === "1";

function make(tag, text, kind) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  if (tag === "button") element.type = "button";
  return element;
}

// A word from right to left leaves the order of the others alone.
const LEFTWARDS = /(\S*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]\S*)/u;

function isolated(tag, text) {
  const element = make(tag);
  text.split(LEFTWARDS).forEach((part, at) => {
    const word = at % 2 ? make("bdi", part) : part;
    if (at % 2) word.dir = "ltr";
    element.append(word);
  });
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A launch as sentences call it; inputs and outputs of a call have no number.
function titleOf(launch) {
  return launch.index === null ? launch.label : `${launch.label} ${launch.kernel}`;
}

// Numbers as Python's ".4g" writes them.
function number(value) {
  if (value === null || value === undefined) return "-";
  if (typeof value === "string") return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  if (!Number.isFinite(value)) return "-";
  const [digits, exponent] = value.toExponential(3).split("e");
  const power = Number(exponent);
  if (power >= -4 && power < 4) return String(Number(value.toPrecision(4)));
  const sign = power < 0 ? "-" : "+";
  return `${Number(digits)}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
}

