//! Cluster mode: a server alone, or a replicated database, is a cluster of one shard, whose primary
//! has all slots.
//!
//! A member that is not the primary names the primary to clients (MOVED), and reads for clients
//! that have said READONLY. Keys of several slots in a request are refused as in Redis, though the
//! primary has all slots: what works here works in a cluster of several shards as well. Keys of all
//! slots in a transaction are for clients of Sentinel, without cluster mode.

use super::Shared;
#[cfg(feature = "replication")]
use super::membership::{MemberView, PrimaryView, View, host_and_port};
use super::membership_asked::Demand;
use crate::base::hash_slot::KeySlots;
use crate::base::sha1::{hexadecimal, sha1};
use std::sync::atomic::Ordering::Relaxed;

/// The id of a node, 40 hexadecimal digits: a hash of its name.
pub fn node_id(name: &str) -> String {
    hexadecimal(&sha1(name.as_bytes()))
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// The id.
    pub id: String,
    /// Where clients reach the node; empty: where they have reached the node that tells.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// The node is this server.
    pub is_own: bool,
    /// The node is the primary.
    pub is_primary: bool,
    /// The node was heard of lately.
    pub is_online: bool,
    /// How far the node has the log.
    pub offset: u64,
}

/// The nodes, as this server sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The primary that was known last, then the standbys by their ids.
    pub nodes: Vec<ClusterNode>,
    /// The incarnation of the database.
    pub epoch: u32,
}

impl Topology {
    /// The primary that was known last, online if it is known now.
    pub fn primary(&self) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.is_primary)
    }

    /// This server.
    pub fn own(&self) -> &ClusterNode {
        self.nodes.iter().find(|node| node.is_own).expect("a server sees itself")
    }

    fn alone(shared: &Shared) -> Topology {
        let name = shared.settings.dir().display().to_string();
        let (host, port) = shared.settings.cluster_announced();
        let bound = u16::try_from(shared.wiring.port.load(Relaxed)).unwrap_or(0);
        let own = ClusterNode {
            id: node_id(&name),
            host,
            port: if port > 0 { port } else { bound },
            is_own: true,
            is_primary: true,
            is_online: true,
            offset: 0,
        };
        Topology { nodes: vec![own], epoch: 0 }
    }

    #[cfg(feature = "replication")]
    fn of_members(view: &View, last: Option<PrimaryView>) -> Topology {
        let is_known = view.primary.is_some();
        let view = &View { primary: view.primary.clone().or(last), ..view.clone() };
        let node = |member: &MemberView, is_primary| {
            let (host, port) = host_and_port(&member.address);
            ClusterNode {
                id: node_id(&member.node),
                host: host.to_string(),
                port,
                is_own: member.node == view.node,
                is_primary,
                is_online: member.is_online,
                offset: member.offset(),
            }
        };
        let primary = view.primary.as_ref().map(|primary| match view.is_primary() {
            true => view.own(),
            false => MemberView {
                node: primary.node.clone(),
                address: primary.address.clone(),
                is_online: is_known,
                ..MemberView::default()
            },
        });
        let mut standbys: Vec<ClusterNode> =
            view.standbys().iter().map(|member| node(member, false)).collect();
        standbys.sort_by(|a, b| a.id.cmp(&b.id));
        let primary = primary.map(|member| node(&member, true));
        let nodes = primary.into_iter().chain(standbys).collect();
        Topology { nodes, epoch: view.incarnation }
    }
}

impl Shared {
    /// The nodes of the cluster.
    pub fn topology(&self) -> Topology {
        #[cfg(feature = "replication")]
        if self.membership.is_on() {
            let last = self.membership.last_primary();
            return Topology::of_members(&self.membership.view(), last);
        }
        Topology::alone(self)
    }

    /// Whether the slots are served, as far as this server knows.
    pub fn serves_slots(&self) -> bool {
        let topology = self.topology();
        let is_served = |node: &ClusterNode| match node.is_own {
            true => !self.membership.only_reads(),
            false => node.is_online,
        };
        topology.primary().is_some_and(is_served)
    }

    /// Why a request on keys of these slots is not served here in cluster mode, if so. A client
    /// that `reads_standbys` has said READONLY.
    pub fn refusal_by_slot(
        &self,
        slots: KeySlots,
        asked: Demand,
        reads_standbys: bool,
    ) -> Option<String> {
        match slots {
            KeySlots::None => None,
            KeySlots::Several => {
                Some("CROSSSLOT Keys in request don't hash to the same slot".to_string())
            }
            KeySlots::One(slot) => self.membership.redirection(slot, asked, reads_standbys),
        }
    }
}

#[cfg(all(test, feature = "replication"))]
mod tests {
    use super::*;
    fn member(node: &str, port: u16) -> MemberView {
        MemberView {
            node: node.into(),
            address: format!("10.0.0.1:{port}"),
            is_online: true,
            ..MemberView::default()
        }
    }

    #[test]
    fn each_member_is_a_node_once() {
        let view = |own: &str, primary: Option<&str>, others: &[&str]| View {
            name: "orders".into(),
            node: own.into(),
            address: "10.0.0.1:1".into(),
            primary: primary.map(|node| PrimaryView { node: node.into(), address: "h:9".into() }),
            members: others.iter().map(|node| member(node, 7)).collect(),
            incarnation: 4,
            ..View::default()
        };
        let shape = |view: &View| {
            let Topology { nodes, epoch } = Topology::of_members(view, None);
            assert_eq!(epoch, 4);
            let mark = |node: &ClusterNode| (node.is_own, node.is_primary);
            nodes.iter().map(mark).collect::<Vec<_>>()
        };
        let (own, primary, other) = ((true, false), (false, true), (false, false));
        assert_eq!(shape(&view("a", Some("a"), &["b", "c"])), [(true, true), other, other]);
        let mut all = shape(&view("a", Some("b"), &["c", "b"]));
        assert_eq!(all[0], primary);
        all.sort_unstable();
        assert_eq!(all, [other, primary, own]);
        let mut all = shape(&view("a", None, &["b"]));
        all.sort_unstable();
        assert_eq!(all, [other, own], "no primary is known");
    }
}
