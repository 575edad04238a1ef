//! Objects shared by clients, each under one key, and the operations on each object.

use super::linearizable::{Call, Sequential, is_linearizable};
use super::wire::Reply;
use fastrand::Rng;
use std::collections::{BTreeSet, VecDeque};

/// A number: SET, GET, SET with GET, and INCR.
pub struct Register;

#[derive(Clone, Copy, Debug)]
pub enum RegisterOperation {
    Set(i64),
    Get,
    Swap(i64),
    Increment,
}

/// A set of small numbers.
pub struct SmallSet;

#[derive(Clone, Copy, Debug)]
pub enum SetOperation {
    Add(u8),
    Remove(u8),
    Has(u8),
    Members,
}

/// A list, filled at one end and emptied at the other.
pub struct Queue;

#[derive(Clone, Copy, Debug)]
pub enum QueueOperation {
    Push(i64),
    Pop,
    WaitAndPop,
    Length,
}

fn number(n: Option<i64>) -> Reply {
    n.map_or(Reply::Null, |n| Reply::Text(n.to_string()))
}

impl Sequential for Register {
    type State = Option<i64>;
    type Operation = RegisterOperation;
    type Reply = Reply;

    fn first() -> Option<i64> {
        None
    }

    fn step(state: &mut Option<i64>, operation: &RegisterOperation) -> Reply {
        match *operation {
            RegisterOperation::Set(n) => {
                *state = Some(n);
                Reply::Text("OK".into())
            }
            RegisterOperation::Get => number(*state),
            RegisterOperation::Swap(n) => number(state.replace(n)),
            RegisterOperation::Increment => {
                let sum = state.unwrap_or(0) + 1;
                *state = Some(sum);
                Reply::Integer(sum)
            }
        }
    }
}

impl Sequential for SmallSet {
    type State = BTreeSet<u8>;
    type Operation = SetOperation;
    type Reply = Reply;

    fn first() -> BTreeSet<u8> {
        BTreeSet::new()
    }

    fn step(state: &mut BTreeSet<u8>, operation: &SetOperation) -> Reply {
        Reply::Integer(match operation {
            SetOperation::Add(n) => i64::from(state.insert(*n)),
            SetOperation::Remove(n) => i64::from(state.remove(n)),
            SetOperation::Has(n) => i64::from(state.contains(n)),
            SetOperation::Members => {
                let all = state.iter().map(|n| Reply::Text(n.to_string()));
                let mut all: Vec<Reply> = all.collect();
                all.sort();
                return Reply::Array(all);
            }
        })
    }
}

impl Sequential for Queue {
    type State = VecDeque<i64>;
    type Operation = QueueOperation;
    type Reply = Reply;

    fn first() -> VecDeque<i64> {
        VecDeque::new()
    }

    fn step(state: &mut VecDeque<i64>, operation: &QueueOperation) -> Reply {
        match operation {
            QueueOperation::Push(n) => {
                state.push_back(*n);
                Reply::Integer(state.len() as i64)
            }
            QueueOperation::Pop | QueueOperation::WaitAndPop => number(state.pop_front()),
            QueueOperation::Length => Reply::Integer(state.len() as i64),
        }
    }
}

/// An operation of some object.
#[derive(Clone, Copy, Debug)]
pub enum AnyOperation {
    Register(RegisterOperation),
    Set(SetOperation),
    Queue(QueueOperation),
}

impl AnyOperation {
    /// A random operation on an object of the kind, with a value used by no other operation.
    pub fn random(kind: usize, rng: &mut Rng, value: i64) -> AnyOperation {
        let small = rng.u8(0..5);
        match kind {
            0 => AnyOperation::Register(match rng.u32(0..6) {
                0 => RegisterOperation::Set(value),
                1 => RegisterOperation::Swap(value),
                2 | 3 => RegisterOperation::Increment,
                _ => RegisterOperation::Get,
            }),
            1 => AnyOperation::Set(match rng.u32(0..6) {
                0 | 1 => SetOperation::Add(small),
                2 => SetOperation::Remove(small),
                3 => SetOperation::Members,
                _ => SetOperation::Has(small),
            }),
            _ => AnyOperation::Queue(match rng.u32(0..8) {
                0..3 => QueueOperation::Push(value),
                3 | 4 => QueueOperation::Pop,
                5 | 6 => QueueOperation::WaitAndPop,
                _ => QueueOperation::Length,
            }),
        }
    }

    /// An operation that only reads the same object.
    pub fn reading(self) -> AnyOperation {
        match self {
            AnyOperation::Register(_) => AnyOperation::Register(RegisterOperation::Get),
            AnyOperation::Set(_) => AnyOperation::Set(SetOperation::Members),
            AnyOperation::Queue(_) => AnyOperation::Queue(QueueOperation::Length),
        }
    }

    /// The command.
    pub fn command(self, key: &str) -> String {
        match self {
            AnyOperation::Register(operation) => match operation {
                RegisterOperation::Set(n) => format!("SET {key} {n}"),
                RegisterOperation::Get => format!("GET {key}"),
                RegisterOperation::Swap(n) => format!("SET {key} {n} GET"),
                RegisterOperation::Increment => format!("INCR {key}"),
            },
            AnyOperation::Set(operation) => match operation {
                SetOperation::Add(n) => format!("SADD {key} {n}"),
                SetOperation::Remove(n) => format!("SREM {key} {n}"),
                SetOperation::Has(n) => format!("SISMEMBER {key} {n}"),
                SetOperation::Members => format!("SMEMBERS {key}"),
            },
            AnyOperation::Queue(operation) => match operation {
                QueueOperation::Push(n) => format!("RPUSH {key} {n}"),
                QueueOperation::Pop => format!("LPOP {key}"),
                QueueOperation::WaitAndPop => format!("BLPOP {key} 0.02"),
                QueueOperation::Length => format!("LLEN {key}"),
            },
        }
    }

    /// The reply without the parts known before, in one order.
    pub fn shorten(self, reply: Reply) -> Reply {
        match (self, reply) {
            (AnyOperation::Queue(QueueOperation::WaitAndPop), Reply::Array(all)) => all[1].clone(),
            (AnyOperation::Set(SetOperation::Members), Reply::Array(mut all)) => {
                all.sort();
                Reply::Array(all)
            }
            (_, reply) => reply,
        }
    }
}

/// Whether the calls on one key, all of one kind, are linearizable.
pub fn are_linearizable(calls: &[Call<AnyOperation, Reply>]) -> bool {
    fn those<O>(
        calls: &[Call<AnyOperation, Reply>],
        kind: impl Fn(AnyOperation) -> Option<O>,
    ) -> Vec<Call<O, Reply>> {
        let one = |call: &Call<AnyOperation, Reply>| {
            let operation = kind(call.operation).expect("a key is of one kind");
            Call { invoked: call.invoked, returned: call.returned.clone(), operation }
        };
        calls.iter().map(one).collect()
    }
    match calls.first().map(|call| call.operation) {
        None => true,
        Some(AnyOperation::Register(_)) => {
            is_linearizable::<Register>(&those(calls, |operation| {
                if let AnyOperation::Register(operation) = operation {
                    Some(operation)
                } else {
                    None
                }
            }))
        }
        Some(AnyOperation::Set(_)) => is_linearizable::<SmallSet>(&those(calls, |operation| {
            if let AnyOperation::Set(operation) = operation { Some(operation) } else { None }
        })),
        Some(AnyOperation::Queue(_)) => is_linearizable::<Queue>(&those(calls, |operation| {
            if let AnyOperation::Queue(operation) = operation { Some(operation) } else { None }
        })),
    }
}
