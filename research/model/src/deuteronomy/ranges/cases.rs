//! The cases: the rules as built, and mistakes that break a promise.

use super::RangeStep::{
    Enter, Finish, LookForScans, Note, PutInFront, RaiseLastScan, ReadVersion, ScanData, TakeKeys,
};
use super::{
    Applies, BUILT, ENDS_EARLY, Evicts, Forgets, Inserts, InsertsInVain, Party, RETURNED,
    RangeRules, ScannedTable, Scans,
};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Scans";

fn run(rules: RangeRules, parties: &'static [Party]) -> Outcome {
    explore(ScannedTable { rules, parties })
}

/// All cases of the item.
pub fn cases() -> Vec<Case> {
    let mistake = |rule, explore| Case::breaks((ITEM, Rules::Mutation), rule, RETURNED, explore);
    const TWO: &[Party] = &[Inserts(5), Scans(7), Applies, Evicts];
    const ALL: &[Party] =
        &[Inserts(5), Scans(7), InsertsInVain(4), Inserts(9), Scans(10), Applies, Evicts, Forgets];
    vec![
        mistake("a scan notes its range after it has taken the keys of the index", || {
            let scan = &[TakeKeys, Note, RaiseLastScan, ScanData, ReadVersion, Finish];
            run(RangeRules { scan, ..BUILT }, TWO)
        }),
        mistake("writers are told of a note after its scan has taken the keys", || {
            let scan = &[Note, TakeKeys, RaiseLastScan, ScanData, ReadVersion, Finish];
            run(RangeRules { scan, ..BUILT }, TWO)
        }),
        mistake("a scan reads the data component before the index", || {
            let scan = &[Note, RaiseLastScan, ScanData, TakeKeys, ReadVersion, Finish];
            run(RangeRules { scan, ..BUILT }, TWO)
        }),
        mistake("a key enters the index after its writer has looked for scans", || {
            let write = &[PutInFront, LookForScans, Enter, Finish];
            run(RangeRules { write, ..BUILT }, TWO)
        }),
        mistake("a writer looks for scans before its version is in the table", || {
            let write = &[LookForScans, Enter, PutInFront, Finish];
            run(RangeRules { write, ..BUILT }, TWO)
        }),
        mistake("of a key that has left the table, what the data component had counts", || {
            run(RangeRules { asks_anew: false, ..BUILT }, TWO)
        }),
        mistake("a scan takes whichever version the data component has", || {
            let rules = RangeRules { tells_version: false, has_horizon: false, ..BUILT };
            run(rules, &[Inserts(9), Scans(7), Applies, Evicts])
        }),
        mistake("a note is dropped when its scan has ended", || {
            run(RangeRules { keeps_notes: false, ..BUILT }, &[Inserts(5), Scans(7), Forgets])
        }),
        mistake("the note of a scan that ends early ends before its last key", || {
            let parties = &[Inserts(3), Applies, Evicts, Scans(7), Inserts(5)];
            run(RangeRules { scan: ENDS_EARLY, keeps_last: false, ..BUILT }, parties)
        }),
        Case::holds(
            ITEM,
            "a scan that ends early ends its note with its last key",
            110_000,
            || run(RangeRules { scan: ENDS_EARLY, ..BUILT }, ALL),
        ),
        Case::holds(ITEM, "note, index, data component; enter, put in front, look", 80_000, || {
            run(BUILT, ALL)
        }),
        Case::holds(ITEM, "without a horizon scans that are too old abort", 100_000, || {
            run(RangeRules { has_horizon: false, ..BUILT }, ALL)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_scan_returns_the_newest_versions_below_it() {
        verify_item(cases(), "Scans");
    }
}
