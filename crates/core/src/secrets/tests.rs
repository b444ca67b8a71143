//! Tests of references, rules and redaction.

use super::redaction::REMOVED;
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn found(payload: &str) -> Vec<(String, String)> {
    let references = references(payload).unwrap();
    references.into_iter().map(|reference| (reference.path, reference.name)).collect()
}

fn refused(payload: &str) -> String {
    let InvalidField { field, fix } = references(payload).unwrap_err();
    format!("{field} {fix}")
}

fn rule(owners: &[&str], queues: &[&str], job_types: &[&str]) -> SecretRule {
    let patterns = |names: &[&str]| names.iter().map(|name| NamePattern::new(*name)).collect();
    SecretRule { owners: patterns(owners), queues: patterns(queues), job_types: patterns(job_types) }
}

#[test]
fn references_are_found_at_every_place_in_the_order_of_the_text() {
    let payload = r#"{"env": {"TOKEN": {"$secret": "api-token"}}, "command": ["run", { "$secret" : "b.1" }], "x": {"\u0024secret":"c"}}"#;
    let expected = [("payload.env.TOKEN", "api-token"), ("payload.command[1]", "b.1"), ("payload.x", "c")];
    assert_eq!(found(payload), expected.map(|(path, name)| (path.to_owned(), name.to_owned())));
    assert_eq!(found(r#"{"$secret":"whole"}"#), [("payload".to_owned(), "whole".to_owned())]);
    for none in
        ["null", r#""$secret""#, r#"["$secret"]"#, r#"{"a":"{\"$secret\":\"x\"}"}"#, "not json $secret"]
    {
        assert_eq!(found(none), [], "{none}");
    }
}

#[test]
fn a_malformed_reference_is_named_by_its_path() {
    assert_eq!(
        refused(r#"{"a":[{"$secret":"x","default":1}]}"#),
        "payload.a[0] must have no other key beside $secret"
    );
    assert_eq!(refused(r#"{"$secret":"a","$secret":"b"}"#), "payload must have no other key beside $secret");
    assert_eq!(
        refused(r#"{"a":{"$secret":7}}"#),
        "payload.a must have the name of a secret as $secret, in quotes"
    );
    let wrong_name = refused(r#"{"a":{"b":{"$secret":"no spaces"}}}"#);
    assert!(
        wrong_name
            .starts_with("payload.a.b must have the name of a secret as $secret: the name must consist of")
    );
    let many = vec![json!({ "$secret": "x" }); limits::SECRET_REFERENCES_MAX + 1];
    assert!(references(&json!(many[1..]).to_string()).is_ok());
    assert_eq!(
        refused(&json!(many).to_string()),
        "payload must have at most 32 references to secrets, not 33"
    );
}

#[test]
fn a_long_key_above_many_values_costs_its_length_once() {
    // With a path for each value, these would be 5 GB.
    let (key, items) = ("k".repeat(100_000), vec!["[]"; 50_000].join(","));
    assert_eq!(found(&format!(r#"{{"{key}":[{items}],"z":"\u0041"}}"#)), []);
    let path = format!("payload.{}…", "k".repeat(limits::SECRET_PATH_BYTES_MAX - "payload.".len()));
    let payload = format!(r#"{{"{key}":[0,{{"$secret":"x"}}]}}"#);
    assert_eq!(found(&payload), [(path.clone(), "x".to_owned())]);
    let wrong = refused(&payload.replace("\"x\"", "1"));
    assert!(wrong.starts_with(&format!("{path} must have the name")), "{} bytes", wrong.len());
    let many = vec![r#"{"$secret":"x"}"#; 10_000].join(",");
    let wrong = refused(&format!(r#"{{"{key}":[{many}]}}"#));
    assert_eq!(wrong, "payload must have at most 32 references to secrets, not 10000");
}

#[test]
fn values_replace_references_and_the_rest_stays_to_the_letter() {
    let payload = r#"{"b": 1.0e3,  "a":{ "$secret": "x" }, "c":[{"$secret":"y"}] }"#;
    let references = references(payload).unwrap();
    let value = |name: &str| format!("\"{name}\"\n");
    assert_eq!(resolved(payload, &references, value), r#"{"b": 1.0e3,  "a":"\"x\"\n", "c":["\"y\"\n"] }"#);
}

#[test]
fn a_rule_limits_owner_queue_and_type_together() {
    let all = rule(&["*"], &[], &[]);
    assert!(all.allows("ann", "mail", "send"));
    let some = rule(&["ann", "team-*"], &["mail-*"], &["send"]);
    assert!(some.allows("ann", "mail-eu", "send") && some.allows("team-a", "mail-us", "send"));
    for (owner, queue, job_type) in
        [("bob", "mail-eu", "send"), ("ann", "web", "send"), ("ann", "mail-eu", "x")]
    {
        assert!(!some.allows(owner, queue, job_type), "{owner} {queue} {job_type}");
    }
    assert!(!rule(&[], &[], &[]).allows("ann", "mail", "send"), "without an owner, nobody");
    let long = vec![NamePattern::new("x"); limits::SCOPE_PATTERNS_MAX + 1];
    let problems: Vec<_> = SecretRule { queues: long, ..rule(&[""], &[], &[]) }.problems().collect();
    assert_eq!(
        problems.iter().map(|problem| problem.field.as_str()).collect::<Vec<_>>(),
        ["owners", "queues"]
    );
}

#[test]
fn a_rule_may_allow_jobs_in_a_scope_if_all_of_its_lists_overlap() {
    let patterns =
        |names: &[&str]| -> Vec<NamePattern> { names.iter().map(|name| NamePattern::new(*name)).collect() };
    let scope = |owner: Option<&str>, queues: &[&str], job_types: &[&str]| Scope {
        owner: owner.map(str::to_owned),
        queues: patterns(queues),
        job_types: patterns(job_types),
    };
    let payroll = rule(&["team-*"], &["payroll", "hr-*"], &["shell"]);
    for seen in [
        scope(None, &[], &[]),
        scope(Some("team-a"), &[], &[]),
        scope(None, &["mail", "payroll"], &[]),
        scope(None, &["pay*"], &["s*"]),
        scope(None, &["hr-eu"], &["shell"]),
        // Taken to overlap, because both have a star.
        scope(None, &["it-*"], &[]),
    ] {
        assert!(payroll.may_allow_in(&seen), "{seen:?}");
    }
    for hidden in [
        scope(Some("ann"), &[], &[]),
        scope(None, &["mail"], &[]),
        scope(None, &["payroll"], &["http"]),
        scope(None, &[], &["h*", "process"]),
    ] {
        assert!(!payroll.may_allow_in(&hidden), "{hidden:?}");
    }
    assert!(rule(&["*"], &[], &[]).may_allow_in(&scope(Some("ann"), &["mail"], &["http"])));
}

#[test]
fn names_and_values_have_limits() {
    for good in ["a", "db.password", "A_1-b", &"x".repeat(limits::SECRET_NAME_BYTES_MAX)] {
        assert_eq!(secret_name_problem(good), None, "{good}");
    }
    for bad in ["", ".a", "-a", "a b", "ä", "a/b", &"x".repeat(limits::SECRET_NAME_BYTES_MAX + 1)] {
        assert!(secret_name_problem(bad).is_some(), "{bad}");
    }
    assert_eq!(secret_value_problem(&"x".repeat(limits::SECRET_VALUE_BYTES_MAX)), None);
    assert!(secret_value_problem(&"x".repeat(limits::SECRET_VALUE_BYTES_MAX + 1)).is_some());
    assert!(secret_value_problem("").is_some());
}

#[test]
fn values_their_lines_and_their_base64_are_replaced() {
    let redactor =
        Redactor::new([("db", "hunter2hunter2"), ("pem", "-----BEGIN\nabcdefgh\nxyz\n"), ("pin", "12345")]);
    let text = |text: &str| redactor.text(text.to_owned(), 1_000);
    assert_eq!(text("a hunter2hunter2 b"), "a [secret db] b");
    assert_eq!(text("hunter2hunter2hunter2hunter2"), "[secret db]", "they overlap");
    assert_eq!(text("hunter2hunter2,hunter2hunter2"), "[secret db],[secret db]");
    assert_eq!(text("Basic aHVudGVyMmh1bnRlcjI="), "Basic [secret db]=");
    assert_eq!(text("abcdefgh"), "[secret pem]");
    assert_eq!(
        text("the pin 12345 is too short, and so is xyz"),
        "the pin 12345 is too short, and so is xyz"
    );
    assert!(!format!("{redactor:?}").contains("hunter2"));
}

#[test]
fn a_value_is_found_in_the_form_that_json_gives_it() {
    let redactor = Redactor::new([("db", "pa\"ss\\word"), ("short", "a\"b")]);
    assert_eq!(
        redactor.text(r#"string "pa\"ss\\word", a\"b"#.to_owned(), 99),
        r#"string "[secret db]", a\"b"#
    );
}

#[test]
fn of_values_that_overlap_nothing_is_left() {
    let redactor = Redactor::new([("a", "abcdef"), ("b", "cdefgh"), ("c", "xxabcdefyy"), ("d", "abcdefyy")]);
    let text = |text: &str| redactor.text(text.to_owned(), 99);
    assert_eq!(text("-abcdefgh-"), "-[secret a]-");
    assert_eq!(text("-xxabcdefyy-"), "-[secret c]-");
    assert_eq!(text("-xabcdefyy-"), "-x[secret d]-");
}

#[test]
fn many_lines_are_searched_for_up_to_a_limit_the_longest_first() {
    let value = |first: usize, width: usize| -> String {
        (first..first + 4_000).map(|n| format!("{n:0width$}\n")).collect()
    };
    let (long, short) = (value(0, 7), value(50_000, 6));
    let redactor = Redactor::new([("short", short.as_str()), ("long", long.as_str())]);
    assert_eq!(redactor.text("0000007 050000".to_owned(), 99), "[secret long] 050000");
    let whole = redactor.text(format!("<{short}>"), 99_999);
    assert_eq!(whole, "<[secret short]>", "values are always searched for");
}

#[test]
fn the_beginning_of_a_value_that_was_cut_is_replaced() {
    let redactor = Redactor::new([("db", "hunter2hünter2")]);
    let text = |text: &str| redactor.text(text.to_owned(), 40);
    assert_eq!(text("it is hunter2hün […]"), "it is [secret db] […]");
    assert_eq!(text("it is hunter […]"), "it is [secret db] […]");
    assert_eq!(text("it is hunte […]"), "it is hunte […]", "too short to be told from a word");
    assert_eq!(text("it is hunter"), "it is hunter", "not cut");
    let full = text(&format!("{}hunter2h", "x".repeat(30)));
    assert_eq!(full, format!("{}[sec […]", "x".repeat(30)), "as long as the limit");
    let start = "x".repeat(limits::LOG_LINE_BYTES_MAX - 20);
    let mut lines = [format!("{start}is hunter2hün […]"), "hunter2".to_owned()];
    redactor.lines(&mut lines.each_mut());
    assert_eq!(lines, [format!("{start}is [secret db] […]"), "hunter2".to_owned()]);
}

#[test]
fn long_names_do_not_make_texts_too_long() {
    let name = "n".repeat(limits::SECRET_NAME_BYTES_MAX);
    let redactor = Redactor::new([(name.as_str(), "hunter2")]);
    let text = redactor.text("hunter2 ".repeat(60), 500);
    assert!(text.len() <= 500 && text.ends_with(" […]") && text.starts_with("[secret nnn"), "{text}");
    let mut line = "hunter2 ".repeat(limits::LOG_LINE_BYTES_MAX / 8);
    redactor.lines(&mut [&mut line]);
    assert!(line.len() <= limits::LOG_LINE_BYTES_MAX && line.ends_with(" […]"));
}

#[test]
fn a_value_that_is_spread_over_lines_is_replaced_in_each_of_them() {
    let redactor = Redactor::new([("db", "hunter2hunter2")]);
    let mut lines = ["say hunter", "2hun", "ter2!", "the end"].map(str::to_owned);
    let mut borrowed: Vec<&mut String> = lines.iter_mut().collect();
    redactor.lines(&mut borrowed);
    assert_eq!(lines, ["say [secret db]", "[secret db]", "[secret db]!", "the end"]);
}

#[test]
fn a_value_that_is_spread_over_the_lines_of_one_text_is_replaced() {
    let redactor = Redactor::new([("db", "S3cretValue-MARK-abc"), ("pem", "-----BEGIN\nabcdefgh\nxyz\n")]);
    let text = |text: &str| redactor.text(text.to_owned(), 1_000);
    let error = "exited with code 3: S3cretVal\nue-MARK-abc\nthe end";
    assert_eq!(text(error), "exited with code 3: [secret db]\nthe end");
    assert_eq!(text("S3cret\r\nValue\n\n-MARK-abc"), "[secret db]");
    assert_eq!(text("ü\nü S3cretValue-MARK-abc\nü"), "ü\nü [secret db]\nü");
    assert_eq!(text("S3cretValue-\nMARK-abd"), "S3cretValue-\nMARK-abd");
}

#[test]
fn a_value_that_is_spread_over_the_strings_of_a_document_removes_it() {
    let redactor = Redactor::new([("db", "S3cretValue-MARK-1234")]);
    let json = |value: Value| redactor.json(value.to_string(), 1_000);
    let removed = format!("\"{REMOVED}\"");
    for spread in [
        json!(["S3cretValue-", "MARK-1234"]),
        json!({ "first": "S3cret", "then": { "second": "Value-MARK-", "third": 1234 } }),
    ] {
        assert_eq!(json(spread.clone()), removed, "{spread}");
    }
    let apart = json!({ "first": "S3cretValue-", "then": { "second": ["x", "MARK-", 1234] } });
    assert_eq!(json(apart.clone()), apart.to_string());
    let beside = json!(["S3cretValue-MARK-1234", "S3cretValue-"]);
    assert_eq!(json(beside), json!(["[secret db]", "S3cretValue-"]).to_string());
}

#[test]
fn a_value_is_found_in_json_with_escapes_of_all_characters_beyond_ascii() {
    let redactor = Redactor::new([("db", "pässword 😀")]);
    let text = |text: &str| redactor.text(text.to_owned(), 1_000);
    assert_eq!(text(r#"{"p": "p\u00e4ssword \ud83d\ude00"}"#), r#"{"p": "[secret db]"}"#);
    assert_eq!(text(r#"{"p": "p\u00E4ssword \uD83D\uDE00"}"#), r#"{"p": "[secret db]"}"#);
}

#[test]
fn a_value_is_found_in_the_json_of_other_languages_and_in_json_within_json() {
    let secrets = [
        ("word", "grün-geheim-zebra77"),
        ("path", "aB3/dEf9/x"),
        ("html", "aB3&dEf9<x>"),
        ("face", "abcde😀"),
    ];
    let redactor = Redactor::new(secrets);
    let text = |text: &str| redactor.text(text.to_owned(), 1_000);
    for (name, python, php, go) in [
        ("word", r"gr\u00fcn-geheim-zebra77", r"gr\u00fcn-geheim-zebra77", "grün-geheim-zebra77"),
        ("path", "aB3/dEf9/x", r"aB3\/dEf9\/x", "aB3/dEf9/x"),
        ("html", "aB3&dEf9<x>", "aB3&dEf9<x>", r"aB3\u0026dEf9\u003cx\u003e"),
        ("face", r"abcde\ud83d\ude00", r"abcde\uD83D\uDE00", "abcde😀"),
    ] {
        for form in [python, php, go] {
            let mut json = format!(r#"{{"ü": "{form}"}}"#);
            let mut expected = format!(r#"{{"ü": "[secret {name}]"}}"#);
            for depth in 0..3 {
                assert_eq!(text(&json), expected, "{depth}");
                let redacted = redactor.json(json.clone(), 1_000);
                assert!(redacted.contains(&format!("[secret {name}]")), "{redacted}");
                (json, expected) = (Value::from(json).to_string(), Value::from(expected).to_string());
            }
        }
    }
    let php_in_php = r#""{\"a\":\"aB3\\\/dEf9\\\/x\",\"b\":\"\\\/\"}""#;
    assert_eq!(text(php_in_php), r#""{\"a\":\"[secret path]\",\"b\":\"\\\/\"}""#);
    let not_json = r"C:\new\users \ud83d \u12 \x aB3\dEf9\x";
    assert_eq!(text(not_json), not_json);
}

#[test]
fn a_value_with_escapes_is_found_over_lines_and_where_it_was_cut() {
    let redactor = Redactor::new([("db", "grün-geheim/zebra77")]);
    let mut lines = [r#"{"p": "gr\u00"#, r"fcn-geheim\", r#"/zebra77"}"#].map(str::to_owned);
    redactor.lines(&mut lines.each_mut());
    assert_eq!(lines, [r#"{"p": "[secret db]"#, "[secret db]", r#"[secret db]"}"#]);
    for cut in [r"gr\u00fcn-geheim\", r"gr\u00fcn-geheim", r"gr\\u00fcn-geheim\\", r"gr\u00fcn-geheim\/zeb"] {
        assert_eq!(redactor.text(format!("it is {cut} […]"), 99), "it is [secret db] […]", "{cut}");
    }
    let redactor = Redactor::new([("db", "geheim-é-zebra")]);
    assert_eq!(redactor.text(r"it is geheim-\u00 […]".to_owned(), 99), "it is [secret db] […]");
}

#[test]
fn the_host_of_a_url_is_found_in_lower_case() {
    let redactor =
        Redactor::new([("hook", "https://Hunter2-Zebra99.invalid:81/x?key=1"), ("short", "http://a/")]);
    assert_eq!(
        redactor.text("GET hunter2-zebra99.invalid:81: cannot connect to a".to_owned(), 99),
        "GET [secret hook]:81: cannot connect to a"
    );
}

#[test]
fn documents_stay_documents() {
    let redactor = Redactor::new([("db", "line one\n\"two\""), ("number", "12345678")]);
    let json = |value: Value| redactor.json(value.to_string(), 1_000);
    assert_eq!(
        json(json!({ "a": ["line one\n\"two\""], "x 12345678": 1, "n": 12_345_678 })),
        json!({ "a": ["[secret db]"], "x [secret number]": 1, "n": "[secret number]" }).to_string()
    );
    assert_eq!(redactor.json(r#"{"b": 1.0e3, "a":[ ]}"#.to_owned(), 1_000), r#"{"b": 1.0e3, "a":[ ]}"#);
    assert_eq!(redactor.json(r#""\u0031\u0032345678""#.to_owned(), 1_000), r#""[secret number]""#);
    let large = format!("[{}]", vec!["\"12345678\""; 20].join(","));
    assert_eq!(redactor.json(large, 250), format!("\"{REMOVED}\""));
    assert_eq!(redactor.json("12345678 is no document {".to_owned(), 99), "[secret number] is no document {");
}

#[test]
fn numbers_duplicates_and_documents_in_results_are_found() {
    let document = r#"{"user":"ann","pass":"x"}"#;
    let secrets = [("pin", "123456789012345678901234"), ("key", "hunter2"), ("doc", document)];
    let redactor = Redactor::new(secrets);
    let json = |json: &str| redactor.json(json.to_owned(), 1_000);
    assert_eq!(json(r#"{"pin":123456789012345678901234, "a":1.50}"#), r#"{"pin":"[secret pin]", "a":1.50}"#);
    assert_eq!(json(r#"{"a":"hunter2","a":"x"}"#), r#"{"a":"[secret key]","a":"x"}"#);
    assert_eq!(json(&format!(r#"{{"all":[{document}]}}"#)), format!("\"{REMOVED}\""));
    assert_eq!(json(&Value::from(document).to_string()), r#""[secret doc]""#);
    // A backslash at the end may be half an escape, which goes with the value.
    assert_eq!(json(r#"["\"hunter2\\", "\\"]"#), r#"["\"[secret key]", "\\"]"#);
}

proptest! {
    #[test]
    fn no_value_is_left_however_it_is_surrounded_and_cut(
        value in "[a-f]{6,20}", before in "[a-f ]{0,12}", after in "[a-f ]{0,12}", cut in 0_usize..40,
    ) {
        let redactor = Redactor::new([("x", value.as_str())]);
        let text = format!("{before}{value}{after}");
        prop_assert!(!redactor.text(text.clone(), 1_000).contains(&value));
        let (first, second) = text.split_at(cut.min(text.len()));
        let (mut first, mut second) = (first.to_owned(), second.to_owned());
        redactor.lines(&mut [&mut first, &mut second]);
        prop_assert!(!(first + &second).contains(&value));
    }

    #[test]
    fn a_resolved_payload_has_the_value_exactly_where_the_reference_was(
        value in any::<String>(), key in any::<String>(), other in any::<String>(),
    ) {
        prop_assume!(key != REFERENCE_KEY && key != "other");
        let payload = json!({ &key: [1, { "$secret": "x" }], "other": other }).to_string();
        let references = references(&payload).unwrap();
        prop_assert_eq!(references.len(), 1);
        let given: Value = serde_json::from_str(&resolved(&payload, &references, |_| value.clone())).unwrap();
        prop_assert_eq!(given, json!({ &key: [1, value], "other": other }));
    }

    #[test]
    fn texts_without_values_stay_as_they_are(text in "[g-z \\n]{0,60}", value in "[a-f]{6,20}") {
        let redactor = Redactor::new([("x", value.as_str())]);
        prop_assert_eq!(redactor.text(text.clone(), 1_000), text);
    }
}
