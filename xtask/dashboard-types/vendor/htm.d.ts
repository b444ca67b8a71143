declare const htm: { bind(make: any): (parts: TemplateStringsArray, ...values: any[]) => any };
export default htm;
