//! Nodes with replicas of partitions, as in the paper on command logging (Malviya, Weisberg,
//! Madden, Stonebraker: "Rethinking Main Memory OLTP Recovery", ICDE 2014, section V-C, 6).
//!
//! A *site* is a thread that owns a replica of a partition, and runs the partition's transactions
//! one by one, in an order common to all nodes. A transaction of one partition runs at each
//! replica, without messages between the replicas: it is deterministic. A transaction of several
//! partitions occupies the sites of all their replicas until its end: the transaction runs, and the
//! sites exchange messages in [`MESSAGE_ROUNDS`] rounds, if the sites are on more than one node.
//! Every node has a log on one device; a transaction is acknowledged once all involved nodes have
//! run and logged it. A call that is logged on arrival is logged during its wait, changes are
//! logged after they were made.

use crate::costs::Costs;
use crate::shared::Time;
use fastrand::Rng;

/// Rounds of messages of a transaction on several nodes: the parts of the transaction's work with
/// their results, and the transaction's end.
pub const MESSAGE_ROUNDS: f64 = 2.0;

/// The number of simulated transactions; the first third is the warm-up.
const TRANSACTIONS: usize = 150_000;

/// Nodes and their load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Nodes.
    pub nodes: usize,
    /// Sites of each node.
    pub sites: usize,
    /// Nodes that have a copy of each partition.
    pub replicas: usize,
    /// The share of transactions that access two partitions.
    pub multi_partition: f64,
    /// The time of a message to another node and the answer, in seconds.
    pub round_trip: f64,
    /// Bytes per second of each node's log.
    pub bandwidth: f64,
    /// Seconds from the last byte of a write to its completion, with the time for which the log
    /// collects records.
    pub latency: f64,
    /// Transactions for each node that may await acknowledgement.
    pub in_flight: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterResult {
    /// Transactions acknowledged.
    pub acknowledged: u64,
    /// The simulated time in seconds.
    pub seconds: f64,
    /// Latencies in nanoseconds.
    pub latencies: Vec<u64>,
}

impl Cluster {
    /// Checks that such nodes can exist.
    ///
    /// # Errors
    /// A sentence that names the value and its limits.
    pub fn check(&self) -> Result<(), String> {
        let Cluster { nodes, sites, replicas, multi_partition, .. } = *self;
        if !(1..=64).contains(&nodes) {
            return Err(format!("{nodes} nodes are not simulated; choose 1 to 64"));
        }
        if !(1..=256).contains(&sites) {
            return Err(format!("{sites} sites of a node are not simulated; choose 1 to 256"));
        }
        if !(1..=nodes).contains(&replicas) {
            return Err(format!("{replicas} replicas on {nodes} nodes: choose 1 to {nodes}"));
        }
        if !(nodes * sites).is_multiple_of(replicas) {
            let all = nodes * sites;
            return Err(format!(
                "{all} sites hold no whole number of partitions with {replicas} replicas each"
            ));
        }
        if !(0.0..=1.0).contains(&multi_partition) {
            return Err(format!(
                "the share of transactions of several partitions must be 0 to 1, not \
                 {multi_partition}"
            ));
        }
        if multi_partition > 0.0 && self.partitions() < 2 {
            return Err("a single partition has no transactions of several partitions".to_string());
        }
        if !(0.0..=10.0).contains(&self.round_trip) || !(0.0..=3600.0).contains(&self.latency) {
            return Err("a round trip must take 0 to 10 s, a write 0 to 3600 s".to_string());
        }
        if !(self.bandwidth > 0.0 && self.bandwidth.is_finite()) {
            return Err(format!("the bandwidth of a log must be above 0, not {}", self.bandwidth));
        }
        if !(1..=1 << 20).contains(&self.in_flight) {
            let in_flight = self.in_flight;
            return Err(format!("{in_flight} transactions in flight: choose 1 to {}", 1 << 20));
        }
        Ok(())
    }

    fn partitions(&self) -> usize {
        self.nodes * self.sites / self.replicas
    }

    /// The node of a partition's replica.
    fn node(&self, partition: usize, replica: usize) -> usize {
        (partition + replica) % self.nodes
    }
}

/// The state of all sites and logs.
struct Sites<'c> {
    cluster: &'c Cluster,
    work: Time,
    round_trips: Time,
    /// The time when the site of each replica is free, by partition.
    free: Vec<Time>,
    /// The time when the log of each node has transferred all bytes given.
    transferred: Vec<Time>,
    transfer: Time,
    /// Whether a call is logged on arrival; `None`: nothing is logged.
    on_arrival: Option<bool>,
}

/// Runs the model.
///
/// # Errors
/// No such nodes can exist, or the costs lack this scheme.
pub fn run(costs: &Costs, words: (&str, &str), cluster: &Cluster) -> Result<ClusterResult, String> {
    cluster.check()?;
    let own = costs.site(words.0, words.1).ok_or_else(|| {
        format!("the calibration has no costs of sites for {} {}", words.0, words.1)
    })?;
    let partitions = cluster.partitions();
    let mut rng = Rng::with_seed(cluster.seed);
    let mut sites = Sites {
        cluster,
        work: own.worker_ns as Time,
        round_trips: (MESSAGE_ROUNDS * cluster.round_trip * 1e9) as Time,
        free: vec![0; partitions * cluster.replicas],
        transferred: vec![0; cluster.nodes],
        transfer: (own.bytes / cluster.bandwidth * 1e9) as Time,
        on_arrival: (words.0 != "none").then_some(words.1 == "command"),
    };
    // A closed loop: a transaction arrives at the acknowledgement of the transaction `in_flight`
    // times `nodes` before.
    let mut acknowledged = vec![0; cluster.in_flight * cluster.nodes];
    let mut latencies = Vec::new();
    let (mut first, mut last) = (0, 0);
    for number in 0..TRANSACTIONS {
        let slot = number % acknowledged.len();
        let arrival = acknowledged[slot];
        let home = rng.usize(..partitions);
        let second = (partitions > 1 && rng.f64() < cluster.multi_partition)
            .then(|| (home + rng.usize(1..partitions)) % partitions);
        let done = sites.run(home, second, arrival);
        acknowledged[slot] = done;
        last = last.max(done);
        if number < TRANSACTIONS / 3 {
            first = last;
        } else {
            latencies.push(done - arrival);
        }
    }
    let seconds = (last - first).max(1) as f64 / 1e9;
    Ok(ClusterResult { acknowledged: latencies.len() as u64, seconds, latencies })
}

impl Sites<'_> {
    /// Runs the next transaction of the order; returns the time of its acknowledgement.
    fn run(&mut self, home: usize, second: Option<usize>, arrival: Time) -> Time {
        let Cluster { replicas, nodes, .. } = *self.cluster;
        let partitions = || std::iter::once(home).chain(second);
        let all = || partitions().flat_map(|p| (0..replicas).map(move |replica| (p, replica)));
        let site = |(partition, replica): (usize, usize)| partition * replicas + replica;
        let mut involved = vec![false; nodes];
        all().for_each(|(p, replica)| involved[self.cluster.node(p, replica)] = true);
        let several_nodes = involved.iter().filter(|is| **is).count() > 1;
        let mut done = arrival;
        if second.is_none() {
            for at in all().map(site) {
                self.free[at] = self.free[at].max(arrival) + self.work;
                done = done.max(self.free[at]);
            }
        } else {
            let begin = all().map(|at| self.free[site(at)]).fold(arrival, Time::max);
            done = begin + self.work + if several_nodes { self.round_trips } else { 0 };
            all().map(site).for_each(|at| self.free[at] = done);
        }
        let ran = done;
        if let Some(on_arrival) = self.on_arrival {
            let logged = if on_arrival { arrival } else { ran };
            for (node, _) in involved.iter().enumerate().filter(|(_, is)| **is) {
                let transferred = &mut self.transferred[node];
                *transferred = (*transferred).max(logged) + self.transfer;
                done = done.max(*transferred + (self.cluster.latency * 1e9) as Time);
            }
        }
        // The answers of the remaining nodes.
        done + if several_nodes { (self.cluster.round_trip * 1e9) as Time } else { 0 }
    }
}
