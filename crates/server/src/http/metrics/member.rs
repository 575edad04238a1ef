//! The metrics of a member of a replicated database.

use crate::state::Shared;
use crate::state::membership::{ROLES, Role, View};
use crate::state::membership_figures::MembershipFigures;
use hyades::{Metric, MetricValue, Metrics};
use std::time::Duration;

/// Adds the metrics of the member, if the server is one.
pub fn add(metrics: &mut Metrics, shared: &Shared) {
    let membership = &shared.membership;
    if !membership.is_on() {
        return;
    }
    let (role, view, figures) = (membership.role(), membership.view(), &membership.figures);
    let lanes = figures.lanes();
    add_state(metrics, role, &view);
    if let Some(since) = lanes.since_answer {
        let help = "Time since the replicated log last answered this member about its keys";
        metrics.extend([seconds("hyades_replication_answer_age_seconds", help, since)]);
    }
    add_counts(metrics, figures);
    metrics.extend(lanes.metrics);
}

fn gauge(name: &'static str, unit: &'static str, help: &'static str, value: f64) -> Metric {
    Metric::new(name, unit, help, MetricValue::Gauge(value))
}

fn seconds(name: &'static str, help: &'static str, value: Duration) -> Metric {
    gauge(name, "seconds", help, value.as_secs_f64())
}

/// The state of the member, and of the other members as seen here.
fn add_state(metrics: &mut Metrics, role: Role, view: &View) {
    let mut add = |metric: Metric| metrics.extend([metric]);
    for each in ROLES.into_iter().skip(1) {
        let help = "1 for the role that this member has now";
        let metric = gauge("hyades_replication_role", "", help, f64::from(u8::from(each == role)));
        add(metric.with_label("role", each.name()));
    }
    let help = "The incarnation of the log that this member writes or follows";
    let incarnation = f64::from(view.incarnation);
    add(gauge("hyades_replication_incarnation", "", help, incarnation));
    if let Some(left) = view.lease_left {
        let help = "How long this primary may answer readers without another renewal of its lease";
        add(seconds("hyades_replication_lease_left_seconds", help, left));
    }
    if let Some(behind) = view.behind_bytes {
        let help = "Age of the state that this standby shows";
        add(seconds("hyades_replication_lag_seconds", help, view.lag));
        let help = "Log that this standby knows of and does not show yet";
        add(gauge("hyades_replication_lag_bytes", "bytes", help, behind as f64));
    }
    let standbys = view.members.iter().filter(|member| member.is_online).count();
    let help = "Standbys heard of within a second, but for this member";
    add(gauge("hyades_replication_standbys", "members", help, standbys as f64));
    for member in &view.members {
        let Some(lag_ms) = member.lag_ms else { continue };
        let help = "Age of the state that another standby shows";
        let lag = lag_ms as f64 / 1e3;
        let metric = gauge("hyades_replication_standby_lag_seconds", "seconds", help, lag);
        add(metric.with_label("node", &*member.node));
    }
    let (name, help) = match role.writes() {
        true => ("hyades_lane_stored_bytes", "Position up to which a lane is stored"),
        false => ("hyades_lane_received_bytes", "Position up to which a lane was received"),
    };
    for (lane, position) in view.positions.iter().enumerate() {
        add(gauge(name, "bytes", help, *position as f64).with_label("lane", lane.to_string()));
    }
    for (lane, place) in view.purged.iter().enumerate() {
        let (name, help) = ("hyades_lane_purged_place", "Messages of a lane that no member needs");
        add(gauge(name, "", help, *place as f64).with_label("lane", lane.to_string()));
    }
    for node in &view.kept_for {
        let help = "1 for each member that the lanes are kept for";
        add(gauge("hyades_replication_kept_for", "", help, 1.0).with_label("node", &**node));
    }
    let help = "Members that fetch the files of this member";
    add(gauge("hyades_replication_bases", "members", help, view.bases as f64));
}

fn add_counts(metrics: &mut Metrics, figures: &MembershipFigures) {
    let mut add = |metric: Metric| metrics.extend([metric]);
    let counter = |name, unit, help, value: f64| {
        let value = MetricValue::Counter(value);
        Metric::new(name, unit, help, value)
    };
    for (role, count) in figures.roles() {
        let help = "How often this member took a role";
        let metric = counter("hyades_replication_roles_total", "", help, count as f64);
        add(metric.with_label("role", role));
    }
    let help = "How often this member saw another primary than before";
    let primaries = figures.primaries() as f64;
    add(counter("hyades_replication_failovers_total", "", help, primaries));
    let takeovers = figures.takeovers();
    let help = "Takeovers by this member";
    add(counter("hyades_replication_takeovers_total", "", help, takeovers.count as f64));
    let help = "Time of the takeovers by this member, from the taking of the lease to the serving";
    let all = takeovers.all.as_secs_f64();
    add(counter("hyades_replication_takeover_seconds_total", "seconds", help, all));
    let help = "Time of the last takeover by this member";
    add(seconds("hyades_replication_last_takeover_seconds", help, takeovers.last));
}
