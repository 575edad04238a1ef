//! Checks that the pages in docs/protocols show the results of the checker word for word.
#![allow(missing_docs)]

use hyades_model::case::{Case, Expected, Rules, trace};
use hyades_model::deuteronomy::whole;
use hyades_model::{ITEMS, cases};
use std::path::Path;

/// Normalizes white space, in which the page may differ.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn page() -> String {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols");
    let pages = std::fs::read_dir(pages).expect("docs/protocols is there");
    let text = |page: std::fs::DirEntry| std::fs::read_to_string(page.path()).expect("a page");
    plain(&pages.map(|page| text(page.expect("a page"))).collect::<Vec<_>>().join("\n"))
}

#[test]
fn every_printed_rule_is_shown_to_fail_on_the_page() {
    let page = page();
    for case in cases().iter().filter(|case| matches!(case.expected, Expected::Breaks(_))) {
        let outcome = case.verify().unwrap_or_else(|fault| panic!("{fault}"));
        let violation = outcome.violation.expect("verified");
        let shown = page.contains(&plain(&trace(&violation)));
        let named = page.contains(case.rule);
        let right = if case.rules == Rules::Printed { shown } else { shown || named };
        assert!(right, "the page does not show this:\n{}", case.report(&case.verify().unwrap()));
    }
}

#[test]
fn every_item_is_shown_to_fail_and_to_hold() {
    let cases = cases();
    for item in ITEMS {
        let is_shown =
            |wanted: fn(&Case) -> bool| cases.iter().any(|c| c.item == *item && wanted(c));
        assert!(is_shown(|c| matches!(c.expected, Expected::Breaks(_))), "{item} never fails");
        assert!(is_shown(|c| matches!(c.expected, Expected::Holds(_))), "{item} never holds");
    }
}

#[test]
fn every_mistake_of_the_whole_component_is_named_on_the_page() {
    let page = page();
    for (_, mistake) in whole::Rule::ALL {
        assert!(page.contains(mistake), "the page does not name this: {mistake}");
    }
}
