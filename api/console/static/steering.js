// Shows characters that turn text round or cannot be seen as escapes. What is typed in a field stays as it is.
const STEERING = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

function escapeCharacter(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function escapeText(node) {
  if (node.nodeType === Node.TEXT_NODE) {
    const shown = node.data.replace(STEERING, escapeCharacter);
    if (shown !== node.data) node.data = shown;
  } else if (!["SCRIPT", "STYLE", "TEXTAREA"].includes(node.nodeName)) {
    node.childNodes.forEach(escapeText);
  }
}

new MutationObserver((changes) => {
  for (const change of changes) {
    if (change.type === "characterData") escapeText(change.target);
    else change.addedNodes.forEach(escapeText);
  }
}).observe(document.documentElement, { characterData: true, childList: true, subtree: true });
