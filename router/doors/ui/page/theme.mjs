// The switch between the system's colours, light and dark ones. The choice is kept for later
// visits: it is the one thing that this page stores beyond its tab.

const NEXT = {auto: 'light', light: 'dark', dark: 'auto'};
const NAMES = {auto: 'as the system', light: 'light', dark: 'dark'};
const SIGNS = {auto: '◐', light: '☀', dark: '☾'};
const STORED = 'weft.theme';

// Storage may be denied; then the choice lasts until the page is left.
function stored() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

function store(theme) {
  try {
    localStorage.setItem(STORED, theme);
  } catch {
    // As above.
  }
}

export function startTheme(button) {
  let theme = NEXT[stored()] === undefined ? 'auto' : stored();
  const show = () => {
    document.documentElement.dataset.theme = theme;
    button.textContent = SIGNS[theme];
    const label = `Colours: ${NAMES[theme]}`;
    button.setAttribute('aria-label', label);
    button.title = label;
  };
  button.addEventListener('click', () => {
    theme = NEXT[theme];
    store(theme);
    show();
  });
  show();
}
