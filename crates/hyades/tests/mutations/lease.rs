//! Mutation tests: that the lease of answers is not checked is noticed, by each kind of reader.

use crate::common::broken::{self, BrokenRule};
use crate::common::leased::{Leased, READERS, is_held};
use hyades_platform::mutation::Mutation;

#[test]
fn an_unchecked_lease_is_noticed() {
    let _alone = broken::alone();
    for reader in READERS {
        let holds = || {
            let leased = Leased::open(|builder| builder);
            is_held(&leased, reader.1)
        };
        assert!(holds(), "{}", reader.0);
        let rules: [BrokenRule<'_>; 1] = [(Mutation::AnswerUnchecked, &holds)];
        eprintln!("{}", reader.0);
        broken::each_is_noticed(&rules);
    }
}
