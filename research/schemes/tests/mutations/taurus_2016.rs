//! Mutation tests: rules of predecessor lists, each broken on purpose, are noticed by worlds of a
//! few transactions.

use crate::common::broken;
use crate::common::definition::{Form, Op, Program, World};
use crate::common::directory;
use hyades::{Concurrency, RecordKind};
use hyades_platform::mutation::{self, Mutation};
use std::panic::{AssertUnwindSafe, catch_unwind};

const X: i64 = 0;
const Y: i64 = 1;

/// T1 overwrites X in stream 0, and T2 does `ops` in stream 1, which alone is durable. Returns
/// whether the acknowledged and recovered transactions are the expected ones.
fn alone(concurrency: Concurrency, record: RecordKind, ops: &[Op]) -> bool {
    in_a_world(concurrency, record, |mut world| {
        world.run(0, Program { number: 1, ops: vec![Op::Put(X)] });
        world.run(1, Program { number: 2, ops: ops.to_vec() });
        world.flush(1);
        world.crash_and_check("");
    })
}

/// T1 overwrites X in stream 0, and T2 reads X in stream 1, when T1 is durable. Then T1 rots.
fn beside_rot() -> bool {
    in_a_world(Concurrency::Silo, RecordKind::Data, |mut world| {
        world.run(0, Program { number: 1, ops: vec![Op::Put(X)] });
        world.flush(0);
        world.run(1, Program { number: 2, ops: vec![Op::Read(X), Op::Put(Y)] });
        world.flush(1);
        world.crash_with_rot_and_check("");
    })
}

fn in_a_world(concurrency: Concurrency, record: RecordKind, run: impl FnOnce(World)) -> bool {
    let form = Form { concurrency, record, streams: 2, compresses: false, anchor: 0 };
    let dir = directory();
    catch_unwind(AssertUnwindSafe(|| run(World::new(dir.path(), form)))).is_ok()
}

#[test]
fn each_broken_rule_of_predecessor_lists_is_noticed() {
    let _alone = broken::alone();
    let read = [Op::Update(X)];
    let rules: [(Mutation, &dyn Fn() -> bool); 4] = [
        (Mutation::OverwrittenAsUnread, &|| alone(Concurrency::Silo, RecordKind::Data, &read)),
        (Mutation::OverwrittenAsUnread, &|| alone(Concurrency::NoWait, RecordKind::Command, &read)),
        (Mutation::NeedOverwritten, &|| {
            alone(Concurrency::Silo, RecordKind::Command, &[Op::Put(X)])
        }),
        (Mutation::LeaveOutUnanchored, &beside_rot),
    ];
    for (rule, holds) in rules {
        assert!(holds(), "{} holds", rule.name());
        mutation::set(Some(rule));
        let held = holds();
        mutation::set(None);
        assert!(!held, "{} goes unnoticed", rule.name());
    }
}
