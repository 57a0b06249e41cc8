// Prints the scopes of a rule file's text, as JSON: [[line, text, scope], ...]. For tests of the grammar.
//   node tokenize.js FILE.rules          (needs `npm install`)

"use strict";

const fs = require("fs");
const path = require("path");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

async function main(file) {
  const wasm = fs.readFileSync(path.join(path.dirname(require.resolve("vscode-oniguruma")), "onig.wasm")).buffer;
  await oniguruma.loadWASM(wasm);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => {
      const place = path.join(__dirname, "syntaxes", "rules.tmLanguage.json");
      return textmate.parseRawGrammar(fs.readFileSync(place, "utf8"), place);
    },
  });
  const grammar = await registry.loadGrammar("source.rules");
  const found = [];
  let state = textmate.INITIAL;
  fs.readFileSync(file, "utf8")
    .split("\n")
    .forEach((line, number) => {
      const result = grammar.tokenizeLine(line, state);
      state = result.ruleStack;
      for (const token of result.tokens) {
        found.push([number + 1, line.slice(token.startIndex, token.endIndex), token.scopes[token.scopes.length - 1]]);
      }
    });
  console.log(JSON.stringify(found));
}

main(process.argv[2]);
