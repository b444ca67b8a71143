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
let browser;
// Pages of the current context: the first one, and further tabs.
let tabs = [];
let current = 0;

// A browser profile of its own: another time zone, another language, nobody logged in.
async function begin(options) {
  for (const context of browser.contexts()) await context.close();
  // The authority of the tests' certificates is unknown to it.
  const context = await browser.newContext({ ignoreHTTPSErrors: true, ...options });
  // Generous, because the machine may be busy.
  context.setDefaultTimeout(120000);
  context.on('page', (page) => {
    page.on('console', (message) => { if (message.type() === 'error') errors.push(`${page.url()}: ${message.text()}`); });
    page.on('pageerror', (error) => errors.push(`${page.url()}: ${error.stack}`));
  });
  tabs = [await context.newPage()];
  current = 0;
}

// References are small: layouts are compared, not letters.
const REFERENCE_PX = 320;
// Of the compression of pictures, from 0 to 1.
const QUALITY = 0.75;
// By so much a pixel may be lighter or darker, after everything around it is blurred.
const SHADES_MAX = 40;

// A picture as WebP in this width.
async function small(canvas, png, width) {
  return canvas.evaluate(async ([data, wide, quality]) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const board = document.createElement('canvas');
    [board.width, board.height] = [wide, Math.round(image.height * wide / image.width)];
    const pen = board.getContext('2d');
    pen.imageSmoothingQuality = 'high';
    pen.drawImage(image, 0, 0, board.width, board.height);
    return board.toDataURL('image/webp', quality).split(',')[1];
  }, [png.toString('base64'), width, QUALITY]);
}

// The share of pixels that differ from the reference, in thousandths.
async function difference(canvas, one, other) {
  return canvas.evaluate(async ([pictures, most]) => {
    const [a, b] = await Promise.all(pictures.map(async (data) => {
      const image = new Image();
      image.src = `data:image/webp;base64,${data}`;
      await image.decode();
      const board = document.createElement('canvas');
      [board.width, board.height] = [image.width, image.height];
      const pen = board.getContext('2d');
      pen.filter = 'blur(2px) grayscale(1)';
      pen.drawImage(image, 0, 0);
      return pen.getImageData(0, 0, board.width, board.height);
    }));
    if (a.width !== b.width || a.height !== b.height) return 1000;
    let unlike = 0;
    for (let at = 0; at < a.data.length; at += 4) if (Math.abs(a.data[at] - b.data[at]) > most) unlike += 1;
    return Math.round(4000 * unlike / a.data.length);
  }, [[one, other], SHADES_MAX]);
}

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
  find: async (page, { what }) => page.waitForSelector(what).then(() => null),
  text: async (page, { what }) => page.innerText(what),
  resize: async (page, { width, height }) => page.setViewportSize({ width, height }),
  picture: async (page, { path, width }) => {
    const canvas = await browser.newPage();
    const png = await page.screenshot();
    fs.writeFileSync(path, width ? Buffer.from(await small(canvas, png, width), 'base64') : png);
    await canvas.close();
  },
  // Compares the layout of the page with a reference, or writes the reference. Returns the thousandths that differ.
  layout: async (page, { path, write }) => {
    const canvas = await browser.newPage();
    const seen = await small(canvas, await page.screenshot({ animations: 'disabled' }), REFERENCE_PX);
    if (write) fs.writeFileSync(path, Buffer.from(seen, 'base64'));
    const unlike = fs.existsSync(path) ? await difference(canvas, seen, fs.readFileSync(path).toString('base64')) : 1000;
    await canvas.close();
    return unlike;
  },
  context: async (_page, { options }) => begin(options),
  // Continues in another tab of the same context, and opens it if needed.
  tab: async (page, { number }) => {
    tabs[number] ??= await page.context().newPage();
    current = number;
    await tabs[number].bringToFront();
  },
  before: async (page, { script }) => page.addInitScript(script),
  select: async (page, { what, value }) => page.selectOption(what, value).then(() => null),
  back: async (page) => page.goBack().then(() => null),
  emulate: async (page, { media }) => page.emulateMedia(media),
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
  browser = await chromium.launch({
    executablePath: process.env.PUNCTUAL_TEST_CHROMIUM,
    chromiumSandbox: false,
    args: [...ALWAYS, ...process.argv.slice(2)],
  });
  await begin({});
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { step, ...details } = JSON.parse(line);
    const answer = await steps[step](tabs[current], details).then(
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
