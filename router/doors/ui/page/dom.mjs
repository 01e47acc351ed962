// Makes elements. Text becomes text nodes and nothing else: no way leads from a string to markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') {
      node.addEventListener(name, value);
    } else {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

// `attributes`: a function is a listener for the event of that name.
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

// Says `text` to a screen reader. A line that is the same as the last one is said again.
export function announce(text) {
  const region = byId('announce');
  region.textContent = region.textContent === text ? `${text}\u00a0` : text;
}

// The clipboard's own interface is there on https and localhost alone.
async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const before = document.activeElement;
  const box = make('textarea', {class: 'hidden', 'aria-hidden': 'true'});
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand('copy');
  box.remove();
  if (before) before.focus();
  if (!done) throw new Error('the browser does not let this page copy');
}

// A button that copies what `getText` gives; `what` is named to a screen reader.
export function copyButton(what, getText) {
  const button = make('button', {
    type: 'button', class: 'quiet', 'aria-label': `Copy ${what}`,
    click: async () => {
      try {
        await copyText(getText());
        button.textContent = 'Copied';
        announce('Copied');
      } catch (error) {
        announce(`Not copied: ${error.message}`);
      }
    },
    blur: () => {
      button.textContent = 'Copy';
    },
  }, 'Copy');
  return button;
}
