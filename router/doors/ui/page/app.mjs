// Puts the page together.

import {Chat} from './chat.mjs';
import {byId} from './dom.mjs';
import {ServerPanel} from './server_panel.mjs';
import {Settings} from './settings.mjs';
import {startTheme} from './theme.mjs';

// Which part a narrow window shows, and which one stands beside the chat in one of middle width.
const MIDDLE = window.matchMedia('(min-width: 760px) and (max-width: 1179.98px)');

function showView(name) {
  document.body.dataset.view = name;
  for (const button of document.querySelectorAll('.views button')) {
    if (button.dataset.view === name) {
      button.setAttribute('aria-current', 'page');
    } else {
      button.removeAttribute('aria-current');
    }
  }
}

function startViews() {
  for (const button of document.querySelectorAll('.views button')) {
    button.addEventListener('click', () => showView(button.dataset.view));
  }
  const fit = () => showView(MIDDLE.matches ? 'settings' : 'chat');
  MIDDLE.addEventListener('change', fit);
  fit();
}

startTheme(byId('theme'));
startViews();
const settings = new Settings(() => {});
new Chat(settings, (name) => {
  showView('settings');
  settings.focus(name);
});
new ServerPanel((info) => {
  byId('model').textContent = info.model_id;
  document.title = `${info.model_id} · weft`;
  settings.showInfo(info);
}).start();
byId('prompt').focus({preventScroll: true});
