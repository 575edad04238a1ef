//! The pages of a member of a replicated database.

use super::format::parsed;
use super::*;
use crate::state::membership::{MemberView, PrimaryView, Role, View};
use crate::state::membership_figures::LaneFigures;
use hyades::{Histogram, Metric, MetricValue};
use std::collections::BTreeMap;

fn view(node: &str) -> View {
    let member = |node: &str, positions: &[u64]| MemberView {
        node: node.into(),
        address: format!("{node}:6379"),
        lag_ms: Some(1_500),
        positions: positions.to_vec(),
        is_online: true,
    };
    View {
        name: "orders".into(),
        node: node.into(),
        address: format!("{node}:6379"),
        primary: Some(PrimaryView { node: "n1".into(), address: "n1:6379".into() }),
        incarnation: 7,
        positions: vec![100, 200],
        members: vec![member("n3", &[90, 150])],
        ..View::default()
    }
}

fn figures() -> LaneFigures {
    let help = "a help";
    let lane = |metric: Metric| metric.with_label("lane", "1");
    let appends = Histogram::new(vec![(0.1, 2), (f64::INFINITY, 4)], 8.0);
    let seconds =
        Metric::new("hyades_lane_seconds", "seconds", help, MetricValue::Histogram(appends));
    let value = MetricValue::Counter(3.0);
    let resends = Metric::new("hyades_lane_resends_total", "messages", help, value);
    LaneFigures {
        metrics: vec![lane(seconds), lane(resends)],
        since_answer: Some(Duration::from_millis(250)),
    }
}

#[test]
fn a_member_tells_of_itself_and_of_the_others() {
    let pages = Pages::new(&[]);
    assert_eq!(pages.status()["replication"], Value::Null);
    assert!(!pages.body("/metrics").contains("hyades_replication"));
    let membership = &pages.shared.membership;
    membership.figures.read_lanes_by(Arc::new(figures));
    membership.set_role(Role::Joining, "the files are read");
    let joining = pages.status();
    assert_eq!(joining["state"], "loading");
    assert_eq!(joining["replication"]["about"], "the files are read");
    pages.open();
    let began = Instant::now();
    membership.figures.took("candidate", began);
    membership.figures.took("primary", Instant::now());
    membership.set_role(Role::Primary, "");
    let lease_left = Some(Duration::from_millis(2_500));
    membership.note_view(Arc::new(View { lease_left, ..view("n1") }));
    let status = &pages.status()["replication"];
    assert_eq!((&status["role"], &status["name"]), (&"primary".into(), &"orders".into()));
    assert_eq!(status["lease_left_seconds"], 2.5);
    let nodes: Vec<_> = status["members"].as_array().unwrap().iter().map(|m| &m["node"]).collect();
    assert_eq!(nodes, ["n1", "n3"]);
    assert_eq!(status["members"][1]["lag_bytes"], 60.0);
    let lane = &status["lanes"][1];
    assert_eq!((&lane["position"], &lane["resends"]), (&200.into(), &3.into()));
    assert_eq!((&lane["appends"], &lane["append_seconds"]), (&4.into(), &8.into()));
    let metrics = parsed(&pages.body("/metrics"));
    let value = |name: &str, label: (&str, &str)| {
        let samples = &metrics[name].1;
        let is_it = |labels: &BTreeMap<String, String>| {
            label.0.is_empty() || labels.get(label.0).is_some_and(|value| value == label.1)
        };
        samples.iter().find(|sample| is_it(&sample.1)).expect(name).2
    };
    for (name, label, expected) in [
        ("replication_role", ("role", "primary"), 1.0),
        ("replication_role", ("role", "standby"), 0.0),
        ("replication_incarnation", ("", ""), 7.0),
        ("replication_lease_left_seconds", ("", ""), 2.5),
        ("replication_answer_age_seconds", ("", ""), 0.25),
        ("replication_standbys", ("", ""), 1.0),
        ("replication_standby_lag_seconds", ("node", "n3"), 1.5),
        ("replication_takeovers_total", ("", ""), 1.0),
        ("replication_roles_total", ("role", "primary"), 1.0),
        ("lane_stored_bytes", ("lane", "1"), 200.0),
        ("lane_seconds", ("le", "0.1"), 2.0),
        ("lane_resends_total", ("lane", "1"), 3.0),
    ] {
        assert_eq!(value(&format!("hyades_{name}"), label), expected, "{name}");
    }
    assert!(!metrics.contains_key("hyades_replication_lag_seconds"), "it has the newest state");
    assert!(value("hyades_replication_last_takeover_seconds", ("", "")) < 60.0);
}

#[test]
fn a_standby_tells_its_lag_and_a_stopped_member_why() {
    let pages = Pages::new(&[]);
    pages.open();
    let membership = &pages.shared.membership;
    membership.set_role(Role::Standby, "");
    let (lag, behind_bytes) = (Duration::from_millis(40), Some(5));
    membership.note_view(Arc::new(View { lag, behind_bytes, ..view("n2") }));
    let status = pages.status();
    let members = &status["replication"]["members"];
    assert_eq!((&members[0]["node"], &members[0]["role"]), (&"n1".into(), &"primary".into()));
    assert_eq!((&members[1]["node"], &members[1]["lag_seconds"]), (&"n2".into(), &0.04.into()));
    assert_eq!(members[1]["lag_bytes"], 5.0);
    assert_eq!(members[2]["lag_bytes"], Value::Null, "the primary knows");
    let metrics = parsed(&pages.body("/metrics"));
    assert_eq!(metrics["hyades_replication_lag_seconds"].1[0].2, 0.04);
    assert_eq!(metrics["hyades_replication_lag_bytes"].1[0].2, 5.0);
    assert_eq!(metrics["hyades_lane_received_bytes"].1.len(), 2);
    assert_eq!(code(&pages.get("/readyz")), "200");
    membership.set_role(Role::Stopped, "procedure x is missing");
    assert_eq!(code(&pages.get("/readyz")), "503");
    let status = pages.status();
    assert_eq!(status["state"], "failed");
    let cause = status["cause"].as_str().unwrap();
    assert!(cause.contains("procedure x is missing"), "{cause}");
}
