//! Spreads the leaders of lanes over the servers, so that a server that dies stalls a part of the
//! lanes alone; and keeps the leaders from the server beside the primary, so that a machine that
//! dies takes no leader with the primary.

use async_nats::jetstream::context::Context;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Where a stream is led, and where the stream could be led.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Led {
    leader: String,
    /// Replicas that run and are up to date, without the leader.
    current: Vec<String>,
}

/// Asks the streams' leaders to step down in favour of other servers, as far as the leaders are not
/// spread yet, or are on the server `near`. A stream that has no leader is left alone.
pub(super) async fn place(streams: &[(&Context, &str)], near: Option<&str>) {
    let mut led = Vec::new();
    for (context, name) in streams {
        led.push(look(context, name).await);
    }
    for (at, to) in moves(&led, near) {
        let (context, name) = streams[at];
        let subject = format!("STREAM.LEADER.STEPDOWN.{name}");
        let wish = json!({ "placement": { "preferred": to } });
        // A leader that stays does no harm.
        drop(context.request::<_, _, Value>(subject, &wish).await);
    }
}

async fn look(context: &Context, name: &str) -> Option<Led> {
    let stream = context.get_stream(name).await.ok()?;
    let cluster = stream.cached_info().cluster.clone()?;
    let current = cluster.replicas.into_iter().filter(|peer| peer.current && !peer.offline);
    Some(Led { leader: cluster.leader?, current: current.map(|peer| peer.name).collect() })
}

/// The streams to move, each with the server to lead the stream from then on.
fn moves(led: &[Option<Led>], near: Option<&str>) -> Vec<(usize, String)> {
    let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
    for led in led.iter().flatten() {
        for server in led.current.iter().chain([&led.leader]) {
            loads.entry(server).or_default();
        }
        *loads.get_mut(&*led.leader).expect("it was entered") += 1;
    }
    let mut moved = Vec::new();
    for (at, led) in led.iter().enumerate() {
        let Some(led) = led else { continue };
        let others = led.current.iter().filter(|server| Some(&***server) != near);
        let Some(best) = others.min_by_key(|server| loads[&***server]) else { continue };
        let is_near = Some(&*led.leader) == near;
        if is_near || loads[&*led.leader] > loads[&**best] + 1 {
            *loads.get_mut(&*led.leader).expect("it was entered") -= 1;
            *loads.get_mut(&**best).expect("it was entered") += 1;
            moved.push((at, best.clone()));
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams led by the named servers out of three; a server in `down` is not up to date.
    fn streams(leaders: &[&str], down: &str) -> Vec<Option<Led>> {
        let led = |leader: &&str| {
            let current =
                ["a", "b", "c"].into_iter().filter(|peer| peer != leader && *peer != down);
            Some(Led {
                leader: (*leader).to_owned(),
                current: current.map(str::to_owned).collect(),
            })
        };
        leaders.iter().map(led).collect()
    }

    fn after(leaders: &[&str], down: &str, near: Option<&str>) -> Vec<String> {
        let mut all: Vec<String> = leaders.iter().map(|leader| (*leader).to_owned()).collect();
        moves(&streams(leaders, down), near).into_iter().for_each(|(at, to)| all[at] = to);
        all
    }

    #[test]
    fn leaders_are_spread_and_then_left_alone() {
        let spread = after(&["a"; 5], "", None);
        let count = |server: &str| spread.iter().filter(|leader| *leader == server).count();
        assert!(
            ["a", "b", "c"].iter().all(|server| (1..=2).contains(&count(server))),
            "{spread:?}"
        );
        let spread: Vec<&str> = spread.iter().map(String::as_str).collect();
        assert!(moves(&streams(&spread, ""), None).is_empty());
    }

    #[test]
    fn leaders_keep_away_from_the_primary_and_from_servers_that_are_behind() {
        let spread = after(&["a", "a", "b", "c"], "", Some("a"));
        assert!(!spread.contains(&"a".to_owned()), "{spread:?}");
        let spread = after(&["a", "a", "a"], "b", None);
        assert!(
            !spread.contains(&"b".to_owned()) && spread.contains(&"c".to_owned()),
            "{spread:?}"
        );
        // No other server is up to date.
        let alone = Some(Led { leader: "a".into(), current: Vec::new() });
        assert_eq!(moves(&[alone, None], Some("a")), []);
    }
}
