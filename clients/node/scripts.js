// Put the scripts of the protocol beside what was compiled. They are the same files for clients in all languages.
import { copyFileSync } from 'node:fs';

for (const name of ['request', 'release', 'registry']) {
  const from = new URL(`../../src/holdfast/scripts/${name}.lua`, import.meta.url);
  copyFileSync(from, new URL(`dist/src/${name}.lua`, import.meta.url));
}
