//! The part of `/status.json` about the members of a replicated database.

use super::json::Json;
use crate::state::Shared;
use crate::state::membership::{MemberView, View};
use hyades::{Metric, MetricValue};

/// The members, the lease and the lanes, if the server is a member.
pub fn status(out: &mut Json, shared: &Shared) {
    let membership = &shared.membership;
    if !membership.is_on() {
        return out.digits("null");
    }
    let (role, view) = (membership.role(), membership.view());
    let lanes = membership.figures.lanes();
    out.object(|out| {
        out.key("name").text(&view.name);
        out.key("node").text(&view.node);
        out.key("role").text(role.name());
        out.key("about").optional(membership.waits_for(), Json::text);
        out.key("incarnation").number(f64::from(view.incarnation));
        let left = view.lease_left.map(|left| left.as_secs_f64());
        out.key("lease_left_seconds").optional(left, Json::number);
        let since = lanes.since_answer.map(|since| since.as_secs_f64());
        out.key("answer_age_seconds").optional(since, Json::number);
        let takeovers = membership.figures.takeovers();
        out.key("takeovers").number(takeovers.count as f64);
        out.key("last_takeover_seconds").number(takeovers.last.as_secs_f64());
        members(out.key("members"), &view, role.name());
        out.key("lanes").list(0..view.positions.len(), |out, lane| {
            out.object(|out| {
                out.key("lane").number(lane as f64);
                out.key("position").number(view.positions[lane] as f64);
                lane_figures(out, lane, &lanes.metrics);
            });
        });
    });
}

/// The primary first, then this member unless it is the primary, then the other standbys.
fn members(out: &mut Json, view: &View, own_role: &str) {
    let is_primary = view.is_primary();
    let stored = view.offset();
    out.list(0..view.members.len() + 2, |out, at| match at {
        0 => {
            if let Some(primary) = &view.primary {
                let role = if is_primary { own_role } else { "primary" };
                member(out, (&primary.node, &primary.address, role), None, None);
            }
        }
        1 if is_primary => {}
        1 => {
            let (lag, behind) = match own_role {
                "standby" => (Some(view.lag.as_secs_f64()), view.behind_bytes),
                _ => (None, None),
            };
            member(out, (&view.node, &view.address, own_role), lag, behind);
        }
        _ => {
            let MemberView { node, address, lag_ms, is_online, .. } = &view.members[at - 2];
            let role = if *is_online { "standby" } else { "not heard of" };
            let behind = stored.saturating_sub(view.members[at - 2].offset());
            let behind = is_primary.then_some(behind);
            member(out, (node, address, role), lag_ms.map(|lag| lag as f64 / 1e3), behind);
        }
    });
}

fn member(
    out: &mut Json,
    (node, address, role): (&str, &str, &str),
    lag: Option<f64>,
    behind: Option<u64>,
) {
    out.object(|out| {
        out.key("node").text(node);
        out.key("address").text(address);
        out.key("role").text(role);
        out.key("lag_seconds").optional(lag, Json::number);
        out.key("lag_bytes").optional(behind, |out, bytes| out.number(bytes as f64));
    });
}

/// The metrics of a lane, by their names without `hyades_lane_` and `_total`.
fn lane_figures(out: &mut Json, lane: usize, metrics: &[Metric]) {
    let label = lane.to_string();
    let is_of = |metric: &&Metric| metric.labels.iter().any(|(_, value)| *value == label);
    for metric in metrics.iter().filter(is_of) {
        let name = metric.name.trim_start_matches("hyades_lane_").trim_end_matches("_total");
        match &metric.value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => out.key(name).number(*value),
            MetricValue::Histogram(histogram) => {
                out.key("appends").number(histogram.count() as f64);
                out.key("append_seconds").number(histogram.sum);
                out.key("append_p99").optional(histogram.quantile(0.99), Json::number);
            }
            _ => {}
        }
    }
}
