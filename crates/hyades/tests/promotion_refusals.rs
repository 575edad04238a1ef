//! What is not promoted, and what a promoted database takes from its builder.
#![allow(missing_docs)]

mod common;

use common::followers::Primary;
use common::members::{self, Member, MirrorFrames};
use common::tee::Tee;
use common::{Combination, How, broken, directory, refused};
use hyades::wal::Mirror;
use hyades::{
    Abort, CheckpointSettings, Concurrency, Database, Error, ImagePlace, Promotion, Protocol,
    RecordKind, Schema, Type,
};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

const COMMANDS: Combination = Combination {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Adaptive,
    streams: 4,
};

/// A member whose incarnation has ended, and what a promotion takes.
fn candidate(c: Combination) -> (Member, Arc<Tee>) {
    let first = Primary::new(c, 3);
    let mut member = Member::join(&first, "b", None);
    let (number, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(1));
    let mut session = first.db().session().unwrap();
    (0..30).for_each(|_| first.change(&mut session, &mut rng, &number));
    drop(session);
    member.round(&first);
    let tee = first.tee.clone();
    drop(first);
    (member, tee)
}

#[test]
fn what_does_not_fit_is_not_promoted() {
    let _alone = broken::alone();
    let refuse = |member: Member, builder: hyades::Builder, why: &str| {
        let Member { frames, follower, .. } = member;
        let mirror = frames.0.into_inner().unwrap();
        let at = members::begin_after(mirror.manifest().newest().unwrap());
        let to = Promotion {
            files: mirror.into_recovering().unwrap(),
            node: "b".to_string(),
            remote: Tee::new(at.streams.len(), 1),
            at,
            above_epoch: 0,
        };
        let error = refused(follower.promote(builder, to).map(drop), why).to_string();
        assert!(error.contains(why), "{error}");
    };
    let declared = |c: Combination| common::followers::declared(c, How::default()).0;
    let ended = || {
        let (mut member, tee) = candidate(COMMANDS);
        member.end(&tee);
        member
    };
    let (member, tee) = candidate(COMMANDS);
    let mut mirror = member.frames.0.lock().unwrap();
    tee.feed(&mut mirror);
    mirror.end(&tee.ends()).unwrap();
    drop(mirror);
    refuse(member, declared(COMMANDS), "the last round of incarnation 1 has not ended");
    let no_wait = Combination { concurrency: Concurrency::NoWait, ..COMMANDS };
    refuse(ended(), declared(no_wait), "it follows taurus with silo");
    let mut more = declared(COMMANDS);
    more.table(Schema::new("more").column("a", Type::I64).primary_key(&["a"]));
    refuse(ended(), more, "the builder declares");
    let mut more = declared(COMMANDS);
    more.procedure("more", 3, |_: &hyades::Transaction<'_>, (): ()| Ok(()));
    refuse(ended(), more, "procedure \"more\" version 3");
    // An image that was begun before the last round.
    let (mut member, tee) = candidate(COMMANDS);
    let image = member.follower.begin_image(1 << 20).unwrap();
    member.end(&tee);
    refuse(member, declared(COMMANDS), "an image of it is being written");
    let place = directory();
    let parts = vec![(0, place.path().join("part"))];
    let device = hyades::device::FileDevice::shared();
    let to = ImagePlace { device, uuid: [1; 16], number: 1, parts, before: 0 };
    let written = image.write(&to, &CheckpointSettings::default(), &AtomicBool::new(false));
    assert!(written.is_ok(), "the image is of the follower that is gone");
}

/// The new database takes the handles of its own builder, and its settings.
#[test]
fn a_promoted_database_is_of_the_new_builder() {
    let _alone = broken::alone();
    let described = || {
        let mut builder = Database::builder().streams(4);
        let words = Schema::new("words").column("w", Type::Text).primary_key(&["w"]);
        let words = builder.table(words);
        let add = builder.procedure("add", 1, move |tx: &hyades::Transaction<'_>, w: String| {
            tx.insert(words, &[w[..].into()]).map(drop)
        });
        (builder, words, add)
    };
    let (dir, tee) = (directory(), Tee::new(4, 1));
    let (builder, words, _) = described();
    let db = builder.remote(tee.clone()).open(dir.path()).unwrap();
    db.transact(|tx| Ok(tx.insert(words, &["one".into()])?)).unwrap();
    let manifest = db.log().unwrap().manifest();
    let incarnation = manifest.newest().unwrap().clone();
    tee.begin(&incarnation);
    let own = directory();
    let (builder, followed, _) = described();
    let options = builder.mirror_options(vec![own.path().to_owned()], 4);
    let mut mirror = Mirror::open(options, "b", manifest.uuid()).unwrap();
    let settings = hyades::wal::IncarnationSettings {
        catalogue: manifest.catalogue.clone(),
        data_only: incarnation.data_only,
        protocol: incarnation.protocol.clone(),
        settings: incarnation.settings.clone(),
    };
    mirror.begin(&members::begin_at(&incarnation), &[], settings, 0).unwrap();
    let log = hyades::FollowedLog {
        catalogue: &manifest.catalogue,
        incarnation: &incarnation,
        base: None,
    };
    let mut follower = builder.follow(&log).unwrap();
    db.close().unwrap();
    tee.feed(&mut mirror);
    mirror.end(&tee.ends()).unwrap();
    let frames = MirrorFrames(Mutex::new(mirror));
    follower.last_round(&tee.ends(), &frames).unwrap();
    let mirror = frames.0.into_inner().unwrap();
    let at = members::begin_after(mirror.manifest().newest().unwrap());
    let (builder, words, add) = described();
    let builder = builder.log_settings(|log| log.buffer_bytes = 1 << 17);
    let to = Promotion {
        files: mirror.into_recovering().unwrap(),
        node: "b".to_string(),
        remote: Tee::new(4, 2),
        at,
        above_epoch: 0,
    };
    let db = follower.promote(builder, to).unwrap();
    assert_eq!(db.log().unwrap().max_payload(), (1 << 17) / 4);
    let mut session = db.session().unwrap();
    session.call(add, &"two".to_string()).unwrap().1.wait().unwrap();
    let all = db.transact(|tx| Ok(tx.scan(words).rows()?.len())).unwrap();
    assert_eq!(all, 2);
    let foreign = db.transact(|tx| Ok(tx.scan(followed).rows()?.len()));
    assert!(matches!(foreign, Err(Error::Aborted(Abort::ForeignHandle { .. }))), "{foreign:?}");
}

/// An incarnation that numbers procedures otherwise is not followed.
#[test]
fn a_renumbered_catalogue_is_refused() {
    let _alone = broken::alone();
    let (mut member, tee) = candidate(COMMANDS);
    member.end(&tee);
    let mut next = member.frames.0.lock().unwrap().manifest().newest().unwrap().clone();
    next.number += 1;
    let manifest = member.frames.0.lock().unwrap().manifest().clone();
    let text = String::from_utf8(manifest.catalogue.clone()).unwrap();
    let renamed = text.replace("\"churn\"", "\"other\"");
    assert_ne!(text, renamed);
    let error = refused(member.follower.next_incarnation(&next, renamed.as_bytes()), "a name");
    assert!(error.to_string().contains("procedure \"other\" version 1 is new"), "{error}");
    let renamed = text.replace("\"hashed\"", "\"other\"");
    let error = refused(member.follower.next_incarnation(&next, renamed.as_bytes()), "a name");
    assert!(error.to_string().contains("table \"other\" is new"), "{error}");
    member.follower.next_incarnation(&next, &manifest.catalogue).unwrap();
}
