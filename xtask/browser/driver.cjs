// Drives a browser for tests. Reads one command per line of standard input, as JSON, and answers each with one line.
// Arguments: further arguments of the browser. The launcher in target/tools/bin names the browser and this file.

const { chromium } = require('playwright-core');
const readline = require('node:readline');

const ALWAYS = ['--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];

// What a step leads to: the page, and the status of its answer.
async function shown(page, response) {
  return { url: page.url(), status: response ? response.status() : null, text: await page.content() };
}

const steps = {
  open: async (page, { url }) => shown(page, await page.goto(url)),
  fill: async (page, { field, text }) => page.fill(field, text),
  // A click on something that leads to another page.
  follow: async (page, { what }) => {
    const [response] = await Promise.all([page.waitForNavigation(), page.click(what)]);
    return shown(page, response);
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
