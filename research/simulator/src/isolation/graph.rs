//! The dependency graph of a history, and the search for cycles in the graph.

mod snapshots;

use super::components::components;
use super::{End, Observed, Op, Order, Place};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write;

/// Why one transaction precedes another.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// The first wrote the value that the second replaced.
    WriteWrite(Place, u64),
    /// The first wrote the value that the second read.
    WriteRead(Place, u64),
    /// The first read the value that the second replaced; `None` for a place without a value.
    ReadWrite(Place, Option<u64>),
    /// The first was answered before the second was invoked.
    RealTime,
    /// The first was answered before, in one session or in an earlier life of the database.
    Session,
    /// Both are one transaction: the reads precede the writes.
    Begins,
}

/// A violation, in readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The name in the literature, or a short description.
    pub name: &'static str,
    /// The transactions involved and why each precedes the next, in lines.
    pub trace: String,
}

impl Anomaly {
    fn new(name: &'static str, trace: String) -> Box<Self> {
        Box::new(Anomaly { name, trace })
    }
}

type Checked<T> = Result<T, Box<Anomaly>>;

/// The reads of a transaction at a place before its first write there, and its writes.
#[derive(Default)]
struct Touched {
    read: Vec<Option<u64>>,
    /// Lists without the transaction's own values.
    lists: Vec<Vec<u64>>,
    wrote: Vec<u64>,
    /// The value replaced by the first write of a register.
    over: Option<Option<u64>>,
}

struct Graph<'h> {
    history: &'h [Observed],
    touched: Vec<BTreeMap<Place, Touched>>,
    /// The transaction that wrote each value.
    writers: HashMap<(Place, u64), usize>,
    /// The values of each place in version order, as far as shown by the history.
    orders: BTreeMap<Place, Vec<u64>>,
    /// Checked transactions: transactions with a known end, aborted transactions included, and the
    /// writers of values read by checked transactions.
    happened: Vec<bool>,
    edges: Vec<Vec<(usize, Why)>>,
    /// The first of the nodes for the commits of transactions, if commits are apart from reads.
    commits: Option<usize>,
}

/// Whether a serial order that agrees with `order` explains the history.
///
/// Complete for histories that end with a read of everything. For other histories an anomaly may be
/// missed, but every reported anomaly is real.
///
/// # Errors
/// The first anomaly found. For a cycle, the shortest one found.
pub fn check(history: &[Observed], order: Order) -> Checked<()> {
    let mut graph = Graph {
        history,
        touched: history.iter().map(|_| BTreeMap::new()).collect(),
        writers: HashMap::new(),
        orders: BTreeMap::new(),
        happened: vec![false; history.len()],
        edges: vec![Vec::new(); history.len()],
        commits: None,
    };
    graph.index_writers();
    let read: Vec<Checked<()>> = (0..history.len()).map(|at| graph.read_transaction(at)).collect();
    graph.find_what_happened()?;
    for (at, own) in read.into_iter().enumerate() {
        // A transaction that may never have taken effect may have read anything.
        if graph.happened[at] {
            own?;
        }
    }
    graph.order_lists()?;
    graph.order_registers()?;
    graph.link();
    match order {
        Order::Any => {}
        Order::Sessions => graph.link_sessions(),
        Order::RealTime => graph.link_real_time(),
        Order::Snapshots => {
            graph.link_real_time();
            graph.set_commits_apart();
        }
    }
    match graph.cycle() {
        None => Ok(()),
        Some(cycle) => Err(graph.explain(&cycle)),
    }
}

impl Graph<'_> {
    fn name(&self, at: usize) -> String {
        let observed = &self.history[at];
        format!("T{at} (asked at {}, {:?}) {:?}", observed.invoked, observed.end, observed.ops)
    }

    fn index_writers(&mut self) {
        for (at, observed) in self.history.iter().enumerate() {
            for op in &observed.ops {
                let wrote = match op {
                    Op::Append { key, value } => (Place::List(*key), *value),
                    Op::Write { key, value, .. } => (Place::Register(*key), *value),
                    _ => continue,
                };
                self.writers.insert(wrote, at);
            }
        }
    }

    /// Separates reads of other transactions' values from reads of own values. The latter must
    /// return the transaction's own last write.
    fn read_transaction(&mut self, at: usize) -> Checked<()> {
        let mut touched: BTreeMap<Place, Touched> = BTreeMap::new();
        for op in &self.history[at].ops {
            match op {
                Op::Append { key, value } => {
                    touched.entry(Place::List(*key)).or_default().wrote.push(*value);
                }
                Op::Write { key, value, over } => {
                    let accesses = touched.entry(Place::Register(*key)).or_default();
                    self.saw_register(at, accesses, *over)?;
                    if accesses.wrote.is_empty() {
                        accesses.over = Some(*over);
                    }
                    accesses.wrote.push(*value);
                }
                Op::List { key, saw } => {
                    let accesses = touched.entry(Place::List(*key)).or_default();
                    let Some(others) = saw.strip_suffix(&accesses.wrote[..]) else {
                        return Err(self.internal(at));
                    };
                    accesses.read.push(others.last().copied());
                    accesses.lists.push(others.to_vec());
                }
                Op::Scan { from, to, saw } => {
                    let saw: BTreeMap<u64, u64> = saw.iter().copied().collect();
                    for key in *from..=*to {
                        let accesses = touched.entry(Place::Register(key)).or_default();
                        self.saw_register(at, accesses, saw.get(&key).copied())?;
                    }
                }
            }
        }
        self.touched[at] = touched;
        Ok(())
    }

    fn internal(&self, at: usize) -> Box<Anomaly> {
        Anomaly::new("own writes not read", self.name(at))
    }

    fn saw_register(&self, at: usize, accesses: &mut Touched, saw: Option<u64>) -> Checked<()> {
        match accesses.wrote.last() {
            Some(own) if saw != Some(*own) => Err(self.internal(at)),
            Some(_) => Ok(()),
            None => {
                accesses.read.push(saw);
                Ok(())
            }
        }
    }

    /// Finds the transactions that took effect: transactions with a known end, and the writers of
    /// the values read by found transactions.
    fn find_what_happened(&mut self) -> Checked<()> {
        let mut open: Vec<usize> = Vec::new();
        for (at, observed) in self.history.iter().enumerate() {
            if observed.end != End::Unknown {
                self.happened[at] = true;
                open.push(at);
            }
        }
        while let Some(at) = open.pop() {
            for (place, value) in self.saw(at) {
                let Some(&writer) = self.writers.get(&(place, value)) else {
                    let trace =
                        format!("{place} had {value}, which was never written: {}", self.name(at));
                    return Err(Anomaly::new("a value from nowhere", trace));
                };
                if matches!(self.history[writer].end, End::Aborted(_)) && writer != at {
                    let trace = format!(
                        "{value} of {place} was seen by {}\nand taken back by {}",
                        self.name(at),
                        self.name(writer)
                    );
                    return Err(Anomaly::new("G1a, aborted read", trace));
                }
                if !std::mem::replace(&mut self.happened[writer], true) {
                    open.push(writer);
                }
            }
        }
        Ok(())
    }

    /// Every value read by a transaction.
    fn saw(&self, at: usize) -> Vec<(Place, u64)> {
        let mut all = Vec::new();
        for op in &self.history[at].ops {
            match op {
                Op::List { key, saw } => all.extend(saw.iter().map(|v| (Place::List(*key), *v))),
                Op::Write { key, over, .. } => all.extend(over.map(|v| (Place::Register(*key), v))),
                Op::Scan { saw, .. } => {
                    all.extend(saw.iter().map(|(k, v)| (Place::Register(*k), *v)));
                }
                Op::Append { .. } => {}
            }
        }
        all
    }

    fn took_effect(&self, at: usize) -> bool {
        self.happened[at] && !matches!(self.history[at].end, End::Aborted(_))
    }

    /// Of two observed states of a list, one must be a prefix of the other. The values of one
    /// transaction must be adjacent in the list.
    fn order_lists(&mut self) -> Checked<()> {
        let mut orders: BTreeMap<Place, Vec<u64>> = BTreeMap::new();
        for at in (0..self.history.len()).filter(|&at| self.happened[at]) {
            let all = self.touched[at]
                .iter()
                .flat_map(|(p, accesses)| accesses.lists.iter().map(move |l| (p, l)));
            for (place, list) in all {
                let order = orders.entry(*place).or_default();
                let n = list.len().min(order.len());
                if list[..n] != order[..n] {
                    let who = self.name(at);
                    let trace = format!("{place} was seen as {order:?}, and as {list:?} by {who}");
                    return Err(Anomaly::new("incompatible orders", trace));
                }
                if list.len() > order.len() {
                    order.clone_from(list);
                }
            }
        }
        self.orders = orders;
        for (place, order) in &self.orders {
            for (n, value) in order.iter().enumerate() {
                let Some(&writer) = self.writers.get(&(*place, *value)) else { continue };
                let wrote = &self.touched[writer][place].wrote;
                let before = wrote.iter().position(|v| v == value).unwrap_or(0);
                let begins = n.checked_sub(before);
                let whole = begins.and_then(|b| order.get(b..(b + wrote.len()).min(order.len())));
                if whole.is_none_or(|whole| !wrote.starts_with(whole) || order[..n].contains(value))
                {
                    let trace =
                        format!("{place} is {order:?}, not as left by {}", self.name(writer));
                    return Err(Anomaly::new("torn list", trace));
                }
            }
        }
        Ok(())
    }

    /// Orders registers by the value replaced by each write. No value may be replaced twice.
    fn order_registers(&mut self) -> Checked<()> {
        let mut after: HashMap<(Place, Option<u64>), usize> = HashMap::new();
        for at in (0..self.history.len()).filter(|&at| self.took_effect(at)) {
            for (place, accesses) in &self.touched[at] {
                let Some(over) = accesses.over else { continue };
                if let Some(other) = after.insert((*place, over), at) {
                    let trace = format!(
                        "{place} with {over:?} was replaced\nby {}\nand by {}",
                        self.name(other),
                        self.name(at)
                    );
                    return Err(Anomaly::new("lost update", trace));
                }
            }
        }
        let places: Vec<Place> = after.keys().map(|(place, _)| *place).collect();
        for place in places {
            let mut order = Vec::new();
            let mut last = None;
            while let Some(&next) = after.get(&(place, last)) {
                order.extend(&self.touched[next][&place].wrote);
                last = order.last().copied();
                if order.len() > self.writers.len() {
                    break;
                }
            }
            self.orders.insert(place, order);
        }
        Ok(())
    }

    /// Adds the edges that follow from values.
    fn link(&mut self) {
        // The writers of the value that follows each value; several where the order is not known.
        let mut next: HashMap<(Place, Option<u64>), Vec<usize>> = HashMap::new();
        for at in (0..self.history.len()).filter(|&at| self.took_effect(at)) {
            for (place, accesses) in &self.touched[at] {
                let Some(first) = accesses.wrote.first() else { continue };
                let order = self.orders.get(place);
                let position = order.and_then(|order| order.iter().position(|v| v == first));
                let before = match (accesses.over, position) {
                    (Some(over), _) => over,
                    (None, Some(position)) => {
                        order.and_then(|o| position.checked_sub(1).and_then(|p| o.get(p))).copied()
                    }
                    // No transaction read the value, so the value comes after all values read.
                    (None, None) => order.and_then(|order| order.last()).copied(),
                };
                next.entry((*place, before)).or_default().push(at);
            }
        }
        for ((place, before), writers) in &next {
            let Some(before) = before else { continue };
            let Some(&writer) = self.writers.get(&(*place, *before)) else { continue };
            for &other in writers.iter().filter(|&&other| other != writer) {
                self.edges[writer].push((other, Why::WriteWrite(*place, *before)));
            }
        }
        for at in (0..self.history.len()).filter(|&at| self.happened[at]) {
            for (place, accesses) in &self.touched[at] {
                for read in &accesses.read {
                    if let Some(value) = read {
                        let writer = self.writers[&(*place, *value)];
                        if writer != at {
                            self.edges[writer].push((at, Why::WriteRead(*place, *value)));
                        }
                        // A value that its own writer has replaced must never be visible to other
                        // transactions.
                        let wrote = &self.touched[writer][place].wrote;
                        if writer != at && wrote.last() != Some(value) {
                            self.edges[at].push((writer, Why::ReadWrite(*place, *read)));
                        }
                    }
                    for &other in next.get(&(*place, *read)).into_iter().flatten() {
                        if other != at {
                            self.edges[at].push((other, Why::ReadWrite(*place, *read)));
                        }
                    }
                }
            }
        }
    }

    /// Adds the edges of real time.
    fn link_real_time(&mut self) {
        let all: Vec<usize> = (0..self.history.len()).collect();
        self.link_answers(&all, &all, &Why::RealTime);
    }

    /// Adds the edges of sessions and of lives.
    fn link_sessions(&mut self) {
        let mut sessions: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (at, observed) in self.history.iter().enumerate() {
            sessions.entry((observed.life, observed.session)).or_default().push(at);
        }
        for session in sessions.values() {
            self.link_answers(session, session, &Why::Session);
        }
        let lives: BTreeSet<usize> = sessions.keys().map(|(life, _)| *life).collect();
        for life in lives {
            let transactions = |is_in: &dyn Fn(usize) -> bool| -> Vec<usize> {
                (0..self.history.len()).filter(|&at| is_in(self.history[at].life)).collect()
            };
            let (earlier, this) =
                (transactions(&|other| other < life), transactions(&|other| other == life));
            self.link_answers(&earlier, &this, &Why::Session);
        }
    }

    /// Adds edges from the transactions in `earlier` to the transactions in `later` that were
    /// invoked after the answers. There is one extra node per answer: the transaction precedes the
    /// node of its answer, each node precedes the next, and a transaction follows the last node
    /// before its invocation.
    fn link_answers(&mut self, earlier: &[usize], later: &[usize], why: &Why) {
        let told = |at: usize| match self.history[at].end {
            End::Acknowledged(moment) | End::Aborted(moment) => Some((moment, at)),
            End::Unknown => None,
        };
        let mut answers: Vec<(u64, usize)> = earlier.iter().filter_map(|&at| told(at)).collect();
        answers.sort_unstable();
        let first = self.edges.len();
        for (n, (_, at)) in answers.iter().enumerate() {
            self.edges.push(Vec::new());
            self.edges[*at].push((first + n, why.clone()));
            if n > 0 {
                self.edges[first + n - 1].push((first + n, why.clone()));
            }
        }
        for &at in later.iter().filter(|&&at| self.happened[at]) {
            let before = answers.partition_point(|(moment, _)| *moment < self.history[at].invoked);
            if before > 0 {
                self.edges[first + before - 1].push((at, why.clone()));
            }
        }
    }

    /// The shortest cycle found, if any, as (node, why it precedes the next).
    fn cycle(&self) -> Option<Vec<(usize, Why)>> {
        let component = components(&self.edges);
        let mut size: HashMap<usize, usize> = HashMap::new();
        component.iter().for_each(|c| *size.entry(*c).or_default() += 1);
        let start = (0..self.history.len()).find(|&at| size[&component[at]] > 1)?;
        let inside: Vec<usize> = (0..self.history.len())
            .filter(|&at| component[at] == component[start])
            .take(50)
            .collect();
        inside.into_iter().filter_map(|at| self.cycle_through(at, &component)).min_by_key(Vec::len)
    }

    fn cycle_through(&self, start: usize, component: &[usize]) -> Option<Vec<(usize, Why)>> {
        let mut came: HashMap<usize, (usize, Why)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            for (to, why) in
                self.edges[at].iter().filter(|(to, _)| component[*to] == component[start])
            {
                if *to == start {
                    let mut cycle = vec![(at, why.clone())];
                    let mut back = at;
                    while back != start {
                        let (from, why) = came[&back].clone();
                        cycle.push((from, why));
                        back = from;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if !came.contains_key(to) {
                    came.insert(*to, (at, why.clone()));
                    queue.push_back(*to);
                }
            }
        }
        None
    }

    fn explain(&self, cycle: &[(usize, Why)]) -> Box<Anomaly> {
        let is = |kind: fn(&Why) -> bool| cycle.iter().filter(|(_, why)| kind(why)).count();
        let reads_over = is(|why| matches!(why, Why::ReadWrite(..)));
        let name = if is(|why| matches!(why, Why::RealTime | Why::Session)) > 0 {
            "real-time violation"
        } else if reads_over == 1 {
            "G-single, read skew"
        } else if reads_over > 1 {
            "G2, anti-dependency cycle"
        } else if is(|why| matches!(why, Why::WriteRead(..))) > 0 {
            "G1c, circular information flow"
        } else {
            "G0, write cycle"
        };
        let mut trace = String::new();
        // The extra nodes for answers are left out of the explanation.
        let steps: Vec<(usize, &Why)> = cycle
            .iter()
            .filter_map(|(at, why)| Some((self.transaction(*at)?, why)))
            .filter(|(_, why)| **why != Why::Begins)
            .collect();
        for (n, (at, why)) in steps.iter().enumerate() {
            let next = steps[(n + 1) % steps.len()].0;
            let because = match why {
                Why::WriteWrite(place, value) => {
                    format!("its {value} in {place} was followed by that of")
                }
                Why::WriteRead(place, value) => format!("its {value} in {place} was seen by"),
                Why::ReadWrite(place, Some(value)) => {
                    format!("it saw {place} end with {value}, before the write of")
                }
                Why::ReadWrite(place, None) => format!("it saw {place} empty, before the write of"),
                Why::RealTime => "it was answered before the invocation of".to_string(),
                Why::Session => "its session was answered before the invocation of".to_string(),
                Why::Begins => continue,
            };
            let _ = writeln!(trace, "{}\n  {because} T{next}", self.name(*at));
        }
        Anomaly::new(name, trace)
    }
}
