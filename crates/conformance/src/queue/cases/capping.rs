//! The cap on active items.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use annals_core::queue::{ItemRef, ItemsBody, TakeBody};

use super::super::Holding;
use super::super::opened::{Opened, q};
use crate::Subject;

pub async fn fifty_racing_callers_in_two_processes_never_exceed_the_cap(subject: &dyn Subject, holding: &dyn Holding) {
    const CAP: u64 = 7;
    let one = Opened::of(subject, holding).await;
    one.define(q().capped(CAP as u32)).await;
    for n in 0..60 {
        one.add(&n.to_string(), annals_core::queue::QueuePriority::Normal, "").await;
    }
    let two = one.beside(subject, holding).await;
    // A slot counts from after it was taken until before it is released.
    let (held, most, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..50)
        .map(|n| {
            let queues = Arc::clone(if n % 2 == 0 { &one.queues } else { &two.queues });
            let (held, most, total) = (Arc::clone(&held), Arc::clone(&most), Arc::clone(&total));
            tokio::spawn(async move {
                let take = queues.take("q", TakeBody::up_to(1)).await.expect("taken");
                for item in &take.items {
                    most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                    total.fetch_add(1, SeqCst);
                    tokio::task::yield_now().await;
                    if n % 3 == 0 {
                        held.fetch_sub(1, SeqCst);
                        let done = queues.done("q", ItemsBody::of([item.reference()])).await.expect("settled");
                        assert!(done[0].changed, "{done:?}");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("it ended");
    }
    assert!(most.load(SeqCst) <= CAP, "{most:?} were active at once");
    assert!(total.load(SeqCst) >= CAP, "{total:?} were handed out");
    assert_eq!((one.active().await, two.active().await), (held.load(SeqCst), held.load(SeqCst)));
}

pub async fn nothing_is_taken_at_the_cap_and_the_next_item_after_a_release(
    subject: &dyn Subject,
    holding: &dyn Holding,
) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    let ids: Vec<String> = (0..12).map(|n| format!("{n:02}")).collect();
    it.add_all(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let taken = it.take(100).await;
    assert_eq!(taken.items.len(), 10, "the default cap");
    assert_eq!(it.taken(1).await, [""; 0]);
    let nobody = it.queues.done("q", ItemsBody::of([ItemRef::current("nobody")])).await.expect("settled");
    assert!(nobody[0].accepted && !nobody[0].changed, "{nobody:?}");
    assert_eq!((it.taken(1).await.len(), it.active().await), (0, 10), "an unknown id frees no slot");
    let first = ItemRef { token: None, ..taken.items[0].reference() };
    assert!(it.queues.done("q", ItemsBody::of([first.clone()])).await.expect("settled")[0].changed);
    assert!(!it.queues.done("q", ItemsBody::of([first])).await.expect("settled")[0].changed, "again");
    assert_eq!(it.taken(100).await, ["10"]);
}

pub async fn a_changed_cap_is_followed_at_once(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(3)).await;
    it.add_all(&["a", "b", "c", "d", "e"]).await;
    let taken = it.take(100).await;
    assert_eq!(taken.items.len(), 3);
    assert!(!it.queues.put(q().capped(1)).await.expect("changed"), "it is not new");
    assert_eq!((it.taken(100).await.len(), it.active().await), (0, 3), "no lease is ended");
    it.done(&taken).await;
    assert_eq!(it.taken(100).await, ["d"]);
    assert!(!it.queues.put(q().capped(2)).await.expect("changed"));
    assert_eq!(it.taken(100).await, ["e"]);
}
