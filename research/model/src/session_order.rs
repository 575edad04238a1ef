//! The order of a client's commands: the item *Session order* of docs/protocols.
//!
//! Clients run commands on sessions, each of which appends to a stream of its own: a command writes
//! the client's row, and may read the row of the other client; or only reads the other client's
//! row. Vectors are Taurus's. A power cut may come after every step: the promise is checked in each
//! state, for the state recovered then. Left out: replies, anchors, and waits. A device that keeps
//! more than the synced bytes equals a state with a longer sync.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// Clients, and rows: each client writes its own row.
const CLIENTS: usize = 2;
/// Sessions, and streams: each session writes its own stream.
const STREAMS: usize = 2;

/// The model.
#[derive(Debug, Clone)]
pub struct SessionOrder {
    /// Number of commands of each client.
    pub commands: usize,
    /// Whether a transaction follows the content of its order.
    pub follows: bool,
    /// Whether each client has an order; otherwise each session has an order.
    pub of_clients: bool,
    /// Whether an order holds all needs of the last record; otherwise only the record's place.
    pub whole: bool,
    /// Whether an order also holds the reads of a command without a record.
    pub with_reads: bool,
}

/// For each stream, the end of the needed records.
type Vector = [u8; STREAMS];

/// A record, at the place given by its index in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Record {
    needs: Vector,
}

/// A command that has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ran {
    /// Stream and end of the command's record, if there is one.
    wrote: Option<(usize, u8)>,
    /// Stream and end of the record that wrote the row read.
    read: Option<(usize, u8)>,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    streams: [Vec<Record>; STREAMS],
    durable: Vector,
    /// By client, or by session.
    orders: [Vector; CLIENTS],
    ran: [Vec<Ran>; CLIENTS],
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's next command runs on a session.
    Run {
        /// The client.
        client: usize,
        /// The session.
        session: usize,
        /// Whether the command writes the client's row.
        writes: bool,
        /// Whether the command reads the other client's row.
        reads: bool,
    },
    /// A stream syncs one more frame.
    Sync(usize),
}

const PREFIX: &str = "what survives of a client is a prefix, with what it had read";

fn join(a: &mut Vector, b: &Vector) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

impl State {
    /// The record of a client's row.
    fn row(&self, client: usize) -> Option<(usize, u8)> {
        self.ran[client].iter().rev().find_map(|ran| ran.wrote)
    }

    fn needs(&self, (stream, end): (usize, u8)) -> Vector {
        self.streams[stream][end as usize - 1].needs
    }

    fn is_live(&self, record: (usize, u8)) -> bool {
        self.needs(record).iter().zip(&self.durable).all(|(need, end)| need <= end)
    }

    /// A client, and its command that is missing although a later command is there.
    fn hole(&self) -> Option<(usize, usize)> {
        (0..CLIENTS).find_map(|client| {
            let ran = &self.ran[client];
            let is_live = |command: &Ran| command.wrote.is_some_and(|record| self.is_live(record));
            let last = ran.iter().rposition(is_live)?;
            let is_lost = |command: &Ran| {
                command.wrote.iter().chain(&command.read).any(|record| !self.is_live(*record))
            };
            Some((client, ran[..last].iter().position(is_lost)?))
        })
    }
}

impl SessionOrder {
    /// The rules as built.
    pub fn ours() -> SessionOrder {
        SessionOrder { commands: 3, follows: true, of_clients: true, whole: true, with_reads: true }
    }

    fn run(&self, state: &mut State, action: &Action) {
        let Action::Run { client, session, writes, reads } = *action else { unreachable!() };
        let order = if self.of_clients { client } else { session };
        // Durable records survive every power cut.
        let mut needs = state.orders[order];
        for (need, end) in needs.iter_mut().zip(&state.durable) {
            *need = if *need <= *end { 0 } else { *need };
        }
        state.orders[order] = needs;
        if !self.follows {
            needs = [0; STREAMS];
        }
        let read = reads.then(|| state.row(1 - client)).flatten();
        if let Some(row) = read {
            join(&mut needs, &state.needs(row));
        }
        let mut wrote = None;
        if writes {
            let end = state.streams[session].len() as u8 + 1;
            needs[session] = end;
            state.streams[session].push(Record { needs });
            wrote = Some((session, end));
            if !self.whole {
                needs = [0; STREAMS];
                needs[session] = end;
            }
        }
        if writes || self.with_reads {
            join(&mut state.orders[order], &needs);
        }
        if writes && !self.whole {
            state.orders[order] = needs;
        }
        state.ran[client].push(Ran { wrote, read });
    }
}

impl Model for SessionOrder {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            streams: Default::default(),
            durable: [0; STREAMS],
            orders: [[0; STREAMS]; CLIENTS],
            ran: Default::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in (0..CLIENTS).filter(|client| state.ran[*client].len() < self.commands) {
            for session in 0..STREAMS {
                actions.push(Action::Run { client, session, writes: true, reads: false });
                if state.row(1 - client).is_some() {
                    actions.push(Action::Run { client, session, writes: true, reads: true });
                    actions.push(Action::Run { client, session, writes: false, reads: true });
                }
            }
        }
        let lags =
            |stream: &usize| (state.durable[*stream] as usize) < state.streams[*stream].len();
        actions.extend((0..STREAMS).filter(lags).map(Action::Sync));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Sync(stream) => state.durable[stream] += 1,
            Action::Run { .. } => self.run(&mut state, &action),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PREFIX, |_, s: &State| s.hole().is_none()),
            Property::sometimes("a found record is dead for its order alone", |_, s: &State| {
                let is_found = |(stream, end): (usize, u8)| end <= s.durable[stream];
                let is_dead = |ran: &Ran| {
                    ran.read.is_none()
                        && ran.wrote.is_some_and(|record| is_found(record) && !s.is_live(record))
                };
                s.ran.iter().flatten().any(is_dead)
            }),
            Property::sometimes("a record leaves out what is durable", |_, s: &State| {
                let leaves_out = |two: &[Ran]| match (two[0].wrote, two[1].wrote) {
                    (Some((stream, _)), Some(next)) => {
                        stream != next.0 && s.needs(next)[stream] == 0
                    }
                    _ => false,
                };
                s.ran.iter().any(|ran| ran.windows(2).any(leaves_out))
            }),
        ]
    }
}

impl Protocol for SessionOrder {
    fn tell(&self, _: &State, action: &Action, after: &State) -> String {
        match *action {
            Action::Sync(stream) => {
                format!("stream {} is durable up to {}", stream + 1, after.durable[stream])
            }
            Action::Run { client, session, writes, reads } => {
                let what = match (writes, reads) {
                    (true, false) => "writes its row",
                    (true, true) => "reads the other's row, and writes its own",
                    (false, _) => "reads the other's row",
                };
                let on = session + 1;
                let record = match after.ran[client].last().and_then(|ran| ran.wrote) {
                    None => format!("on session {on}"),
                    Some(record) => {
                        let [a, b] = after.needs(record);
                        format!("in stream {on}, where the record needs [{a}, {b}]")
                    }
                };
                format!("client {} {what} {record}", client + 1)
            }
        }
    }

    fn verdict(&self, state: &State) -> String {
        let (client, command) = state.hole().expect("the promise is broken");
        format!(
            "a power cut takes command {} of client {}, or what that has read, and leaves a later \
             one",
            command + 1,
            client + 1
        )
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::Mutation;
    fn run(model: SessionOrder) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("Session order", Mutation),
            "a transaction follows others by rows alone",
            PREFIX,
            || run(SessionOrder { follows: false, ..SessionOrder::ours() }),
        ),
        Case::breaks(
            ("Session order", Mutation),
            "an order stays with the session that has run the command",
            PREFIX,
            || run(SessionOrder { of_clients: false, ..SessionOrder::ours() }),
        ),
        Case::breaks(
            ("Session order", Mutation),
            "an order holds the place of the last record alone",
            PREFIX,
            || run(SessionOrder { whole: false, ..SessionOrder::ours() }),
        ),
        Case::breaks(
            ("Session order", Mutation),
            "what a command without a record has read is not in the order",
            PREFIX,
            || run(SessionOrder { with_reads: false, ..SessionOrder::ours() }),
        ),
        Case::holds("Session order", "two clients on two sessions", 1_000_000, || {
            run(SessionOrder::ours())
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn what_survives_of_a_client_is_a_prefix() {
        verify_item(cases(), "Session order");
    }
}
