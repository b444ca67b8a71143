//! Files of `deploy/` that nothing else reads: their names match each other and the documentation.

use serde_json::Value;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn compose() -> Value {
    serde_saphyr::from_str(&read("deploy/compose/compose.yaml")).unwrap()
}

#[test]
fn the_server_of_the_compose_file_finds_its_database() {
    let services = &compose()["services"];
    let (postgres, punctual) = (&services["postgres"], &services["punctual"]);
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    let (user, database) =
        (text(&postgres["environment"]["POSTGRES_USER"]), text(&postgres["environment"]["POSTGRES_DB"]));
    assert_eq!(
        text(&punctual["environment"]["PUNCTUAL_STORE"]),
        format!("postgres://{user}@postgres:5432/{database}")
    );
    assert_eq!(punctual["environment"]["PUNCTUAL_STORE_PASSWORD"], "${POSTGRES_PASSWORD}");
    assert!(text(&postgres["environment"]["POSTGRES_PASSWORD"]).starts_with("${POSTGRES_PASSWORD:?"));
    assert_eq!(punctual["depends_on"]["postgres"]["condition"], "service_healthy");
    let probe: Vec<String> = postgres["healthcheck"]["test"].as_array().unwrap().iter().map(text).collect();
    let expected = [
        "CMD",
        "pg_isready",
        "--host=127.0.0.1",
        &format!("--username={user}"),
        &format!("--dbname={database}"),
    ];
    assert_eq!(probe, expected);
}

#[test]
fn the_compose_file_publishes_its_ports_and_has_volumes() {
    let compose = compose();
    assert_eq!(compose["services"]["punctual"]["ports"], serde_json::json!(["127.0.0.1:7070:7070"]));
    assert!(compose["services"]["postgres"].get("ports").is_none());
    for service in ["prometheus", "grafana"] {
        let port = compose["services"][service]["ports"][0].as_str().unwrap();
        assert!(port.starts_with("127.0.0.1:"), "{service}: {port}");
    }
    for (name, service) in compose["services"].as_object().unwrap() {
        for volume in service["volumes"].as_array().unwrap() {
            let (volume, _) = volume.as_str().unwrap().split_once(':').unwrap();
            let is_file =
                volume.starts_with('.') && repository().join("deploy/compose").join(volume).exists();
            assert!(is_file || compose["volumes"].get(volume).is_some(), "{name}: {volume} is not declared");
        }
    }
    let data = &compose["services"]["punctual"]["environment"]["PUNCTUAL_DATA_DIR"];
    let volume = compose["services"]["punctual"]["volumes"][0].as_str().unwrap();
    assert_eq!(volume.split_once(':').unwrap().1, data.as_str().unwrap());
}

#[test]
fn the_compose_file_uses_existing_settings() {
    let (compose, reference) = (compose(), read("docs/reference/configuration.md"));
    let punctual = &compose["services"]["punctual"];
    let flags = punctual["command"].as_array().unwrap().iter().filter_map(Value::as_str);
    let flags = flags.filter(|word| word.starts_with("--"));
    let variables = punctual["environment"].as_object().unwrap().keys().map(String::as_str);
    for name in flags.chain(variables) {
        assert!(reference.contains(&format!("`{name}`")), "{name} is no setting");
    }
}

#[test]
fn the_image_is_built_with_a_compiler_that_is_new_enough() {
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let image = &compose()["services"]["punctual"]["build"]["dockerfile_inline"];
    let from = format!("FROM rust:{}-bookworm AS build\n", version.trim_matches('"'));
    assert!(image.as_str().unwrap().starts_with(&from), "the image is not built with Rust {version}");
}

#[test]
fn prometheus_and_grafana_of_the_compose_file_find_each_other_and_the_server() {
    let (compose, prometheus): (Value, Value) =
        (compose(), serde_saphyr::from_str(&read("deploy/compose/prometheus.yaml")).unwrap());
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["static_configs"][0]["targets"][0], "punctual:7070");
    let mounts = |service: &str| -> Vec<String> {
        let volumes = compose["services"][service]["volumes"].as_array().unwrap().iter();
        volumes.map(|volume| volume.as_str().unwrap().split(':').nth(1).unwrap().to_owned()).collect()
    };
    let mounted = mounts("prometheus");
    assert!(mounted.contains(&prometheus["rule_files"][0].as_str().unwrap().to_owned()), "{mounted:?}");
    let token = scrape["authorization"]["credentials_file"].as_str().unwrap();
    assert!(mounted.contains(&token.rsplit_once('/').unwrap().0.to_owned()), "{mounted:?}");

    let provisioning = "deploy/grafana/provisioning";
    let source: Value =
        serde_saphyr::from_str(&read(&format!("{provisioning}/datasources/punctual.yaml"))).unwrap();
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");
    let provider: Value =
        serde_saphyr::from_str(&read(&format!("{provisioning}/dashboards/punctual.yaml"))).unwrap();
    let path = provider["providers"][0]["options"]["path"].as_str().unwrap();
    let mounted = mounts("grafana");
    assert!(mounted.contains(&path.to_owned()), "{mounted:?}");
    assert!(mounted.contains(&"/etc/grafana/provisioning".to_owned()), "{mounted:?}");
}

#[test]
fn points_of_traces_in_grafana_are_stored_by_prometheus_and_lead_to_a_trace() {
    let compose = compose();
    let command = compose["services"]["prometheus"]["command"].as_array().unwrap();
    assert!(command.iter().any(|word| word == "--enable-feature=exemplar-storage"), "{command:?}");
    let source: Value =
        serde_saphyr::from_str(&read("deploy/grafana/provisioning/datasources/punctual.yaml")).unwrap();
    let destination = &source["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"][0];
    assert_eq!(destination["name"], "trace_id");
    assert!(destination["url"].as_str().unwrap().ends_with("$${__value.raw}"), "{destination}");
    let dashboard: Value =
        serde_json::from_str(&read("deploy/grafana/dashboards/punctual-overview.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let mut targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let shows = |target: &Value| {
        target["exemplar"] == true
            && target["expr"].as_str().unwrap().contains("punctual_execution_duration_seconds_bucket")
    };
    assert!(targets.any(shows));
}

#[test]
fn each_configuration_of_fluent_bit_names_an_existing_parser_and_one_output() {
    for (file, output) in [("fluent-bit.yaml", "loki"), ("fluent-bit-elasticsearch.yaml", "es")] {
        let config: Value = serde_saphyr::from_str(&read(&format!("deploy/logs/{file}"))).unwrap();
        let parsers = read(&format!("deploy/logs/{}", config["service"]["parsers_file"].as_str().unwrap()));
        let parser = config["pipeline"]["filters"][0]["parser"].as_str().unwrap();
        assert!(parsers.lines().any(|line| line.split_whitespace().eq(["Name", parser])), "{parsers}");
        let outputs = config["pipeline"]["outputs"].as_array().unwrap();
        let names: Vec<&Value> = outputs.iter().map(|output| &output["name"]).collect();
        assert_eq!(names, [output], "{file}");
        assert_eq!(outputs[0]["match"], config["pipeline"]["inputs"][0]["tag"], "{file}");
    }
}

/// An alert without a test may never fire.
#[test]
fn each_alert_of_prometheus_fires_in_a_test() {
    let rules: Value = serde_saphyr::from_str(&read("deploy/prometheus/rules.yaml")).unwrap();
    let tests: Value = serde_saphyr::from_str(&read("deploy/prometheus/rules_test.yaml")).unwrap();
    let tests = tests["tests"].as_array().unwrap().iter();
    let cases: Vec<&Value> = tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap()).collect();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let fires = |case: &&Value| {
            case["alertname"] == rule["alert"] && !case["exp_alerts"].as_array().unwrap().is_empty()
        };
        assert!(cases.iter().any(fires), "no test of {} expects it", rule["alert"]);
    }
}

fn kubernetes(file: &str) -> Vec<Value> {
    let text = read(&format!("deploy/kubernetes/{file}"));
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[test]
fn the_workers_of_kubernetes_use_existing_settings() {
    let (worker, reference) = (&kubernetes("worker.yaml")[0], read("docs/reference/configuration.md"));
    let pod = &worker["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        assert!(reference.contains(&format!("`{name}`")), "{name} is no setting");
    }
    let volumes: Vec<&Value> =
        pod["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    for mount in container["volumeMounts"].as_array().unwrap() {
        assert!(volumes.contains(&&mount["name"]), "{mount}");
    }
    assert_eq!(worker["spec"]["selector"]["matchLabels"], worker["spec"]["template"]["metadata"]["labels"]);
}

/// The options of the command in a comment that creates a token.
fn created_token(file: &str) -> Vec<String> {
    let text = read(&format!("deploy/kubernetes/{file}"));
    let command = text.lines().find_map(|line| line.strip_prefix("#   punctual token create "));
    command.unwrap_or_else(|| panic!("{file} creates no token")).split(' ').map(str::to_owned).collect()
}

#[test]
fn each_token_of_kubernetes_may_do_what_it_is_for_and_no_more() {
    let worker = &kubernetes("worker.yaml")[0]["spec"]["template"]["spec"];
    let environment = worker["containers"][0]["env"].as_array().unwrap();
    let token = created_token("worker.yaml");
    let option = |name: &str| &token[token.iter().position(|word| word == name).unwrap() + 1];
    assert_eq!(option("--role"), "worker", "only workers may run jobs");
    let set = |name: &str| {
        let variable = environment.iter().find(|variable| variable["name"] == name);
        variable.unwrap_or_else(|| panic!("{name} is not set"))["value"].as_str().unwrap().to_owned()
    };
    // A worker names what its token is limited to.
    assert_eq!(*option("--queue"), set("PUNCTUAL_QUEUES"));
    assert_eq!(*option("--job-type"), set("PUNCTUAL_JOB_TYPES"));

    let [authentication, scaled] = &kubernetes("keda.yaml")[..] else { panic!("two documents") };
    assert_eq!(created_token("keda.yaml")[1..3], ["--role", "viewer"]);
    let secret = authentication["spec"]["secretTargetRef"][0]["name"].as_str().unwrap();
    assert_ne!(
        worker["volumes"][0]["secret"]["secretName"], secret,
        "it would read the token of the workers"
    );
    for (file, secret) in [("keda.yaml", secret), ("worker.yaml", "punctual-worker")] {
        let created = format!("kubectl create secret generic {secret} --from-literal=token=");
        assert!(read(&format!("deploy/kubernetes/{file}")).contains(&created), "{file}");
    }
    let url = scaled["spec"]["triggers"][0]["metadata"]["url"].as_str().unwrap();
    for url in [&set("PUNCTUAL_SERVER"), url] {
        assert!(url.starts_with("https://"), "{url}: the token would be sent in the clear");
    }
}

#[test]
fn the_autoscalers_of_kubernetes_use_existing_metrics() {
    let worker = &kubernetes("worker.yaml")[0];
    let [authentication, scaled] = &kubernetes("keda.yaml")[..] else { panic!("two documents") };
    let hpa = &kubernetes("hpa.yaml")[0];
    for autoscaler in [scaled, hpa] {
        assert_eq!(autoscaler["spec"]["scaleTargetRef"]["name"], worker["metadata"]["name"]);
    }
    let trigger = &scaled["spec"]["triggers"][0];
    assert_eq!(trigger["authenticationRef"]["name"], authentication["metadata"]["name"]);

    let url = trigger["metadata"]["url"].as_str().unwrap();
    let path = url.split("7070").nth(1).unwrap().split('?').next().unwrap();
    let (path, queue) = path.rsplit_once('/').unwrap();
    let variables = worker["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let served = variables.iter().find(|variable| variable["name"] == "PUNCTUAL_QUEUES").unwrap();
    assert_eq!(served["value"], queue);
    let openapi: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let parameters = openapi["paths"][format!("{path}/{{queue}}")]["get"]["parameters"].as_array().unwrap();
    for pair in url.split('?').nth(1).unwrap().split('&') {
        let name = pair.split('=').next().unwrap();
        assert!(parameters.iter().any(|parameter| parameter["name"] == name), "{name} is no parameter");
    }
    let value = trigger["metadata"]["valueLocation"].as_str().unwrap();
    assert!(openapi["components"]["schemas"]["Scaling"]["properties"].get(value).is_some(), "{value}");
    let metric = hpa["spec"]["metrics"][0]["external"]["metric"]["name"].as_str().unwrap();
    assert!(read("docs/reference/metrics.md").contains(&format!("`{metric}`")), "{metric} is no metric");
}
