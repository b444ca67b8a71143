// Drives a browser for tests. Reads one command per line of standard input, as JSON, and answers each with one line.
// Arguments: further arguments of the browser. The launcher in target/tools/bin names the browser and this file.

const { chromium } = require('playwright-core');
const fs = require('node:fs');
const readline = require('node:readline');

// Finds accessibility problems of a page.
const AXE = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const ALWAYS = ['--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];

// The result of a step: the page, and the status of its response.
async function shown(page, response) {
  return { url: page.url(), status: response ? response.status() : null, text: await page.content() };
}

const errors = [];

const steps = {
  open: async (page, { url }) => shown(page, await page.goto(url)),
  fill: async (page, { field, text }) => page.fill(field, text),
  // Clicks an element that opens another page.
  follow: async (page, { what }) => {
    const [response] = await Promise.all([page.waitForNavigation(), page.click(what)]);
    return shown(page, response);
  },
  // Clicks an element that changes this page.
  click: async (page, { what }) => page.click(what),
  press: async (page, { keys }) => page.keyboard.press(keys),
  // Waits until the page has an element, given as a Playwright selector.
  find: async (page, { what }) => page.waitForSelector(what, { timeout: 60000 }).then(() => null),
  text: async (page, { what }) => page.innerText(what),
  resize: async (page, { width, height }) => page.setViewportSize({ width, height }),
  picture: async (page, { path }) => page.screenshot({ path }).then(() => null),
  // Errors that pages have written to their console since the last time.
  errors: async () => errors.splice(0),
  axe: async (page) => {
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`);
  },
  cookies: async (page) => page.context().cookies(),
  evaluate: async (page, { script }) => page.evaluate(script),
};

async function main() {
  const browser = await chromium.launch({
    executablePath: process.env.PUNCTUAL_TEST_CHROMIUM,
    chromiumSandbox: false,
    args: [...ALWAYS, ...process.argv.slice(2)],
  });
  // The authority of the tests' certificates is unknown to it.
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  page.on('console', (message) => { if (message.type() === 'error') errors.push(`${page.url()}: ${message.text()}`); });
  page.on('pageerror', (error) => errors.push(`${page.url()}: ${error.stack}`));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { step, ...details } = JSON.parse(line);
    const answer = await steps[step](page, details).then(
      (value) => ({ value: value ?? null }),
      (error) => ({ error: String(error) }),
    );
    console.log(JSON.stringify(answer));
  }
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
