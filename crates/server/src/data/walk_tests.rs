//! Walks over collections of many blocks.

use super::collections::Collection;
use super::long_list::LongList;
use super::member_values::MemberValues;
use super::stored_tests::Stored;

/// More blocks than the pages of a walk could hold if each were twice as long as the one before.
#[test]
fn walks_over_many_blocks() {
    let stored = Stored::new();
    let names: Vec<Vec<u8>> =
        (0..9_000).map(|n| [format!("{n:08}").as_bytes(), &[7; 1_500]].concat()).collect();
    let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let collection = Collection { number: 6, secret: 1 };
    let row = stored.run(|table| {
        collection.by_score(table).fill(names.iter().map(|name| (&name[..], &[][..])))?;
        LongList::write(table, 7, &slices)
    });
    stored.run(|table| {
        let run = collection.by_score(table);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        run.ascend_from(b"", |(name, _)| {
            up.push(name);
            true
        })?;
        run.descend_from(None, |(name, _)| {
            down.push(name);
            true
        })?;
        down.reverse();
        assert!(up == slices && down == slices);
        for rank in [0, 4_400, 4_600, 8_999] {
            assert_eq!(run.slice(rank, 1, names.len())?[0].0, slices[rank]);
        }
        let row = row.clone();
        let list = LongList::from_body(table, &row)?;
        assert!(list.all()? == slices);
        Ok(())
    });
}

/// Members of many ranks are found in one pass over the counts of all blocks: one for each rank
/// would be more than a transaction may read.
#[test]
fn many_ranks_take_one_pass() {
    const MEMBERS: usize = 200_000;
    let stored = Stored::new();
    let names: Vec<Vec<u8>> =
        (0..MEMBERS).map(|n| [format!("{n:08}").as_bytes(), &[7; 92]].concat()).collect();
    let collection = Collection { number: 6, secret: 1 };
    stored.run(|table| {
        collection
            .members(table, MemberValues::None)
            .fill(names.iter().map(|name| (&name[..], &[][..])))
    });
    stored.run(|table| {
        let run = collection.members(table, MemberValues::None);
        let all = run.all()?;
        let last = MEMBERS - 1;
        let many: Vec<usize> = (0..MEMBERS).rev().step_by(67).chain([last, 0, 0]).collect();
        for ranks in [&many[..], &[last, 0], &[7, 7, 7], &[]] {
            let found = run.of_ranks(ranks, MEMBERS)?;
            assert!(found.iter().eq(ranks.iter().map(|rank| &all[*rank])));
        }
        Ok(())
    });
}

/// Each rank of a run of many blocks is found, whichever way leads to it.
#[test]
fn ranks_of_many_blocks() {
    let stored = Stored::new();
    let names: Vec<Vec<u8>> = (0..40_000).map(|n| format!("member:{n:08}").into()).collect();
    let collection = Collection { number: 6, secret: 1 };
    stored.run(|table| {
        collection
            .members(table, MemberValues::None)
            .fill(names.iter().map(|name| (&name[..], &[][..])))?;
        collection.by_score(table).fill(names.iter().map(|name| (&name[..], &[][..])))
    });
    stored.run(|table| {
        let (sorted, hashed) =
            (collection.by_score(table), collection.members(table, MemberValues::None));
        let all = hashed.all()?;
        for rank in (0..names.len()).step_by(1_999).chain([names.len() - 1]) {
            assert_eq!(sorted.slice(rank, 1, names.len())?[0].0, names[rank]);
            assert_eq!(sorted.rank(&names[rank])?, rank);
            assert_eq!(hashed.of_ranks(&[rank], names.len())?[0], all[rank]);
        }
        Ok(())
    });
}
