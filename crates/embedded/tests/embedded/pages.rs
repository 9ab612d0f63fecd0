//! Pages end by the size of what is written, of which an event's data may be the smallest part.

use annals_core::{Aggregate, AggregateQuery, Data, LogQuery, NewCommit, NewEvent, RecordedEvent, Store, limits};

use crate::faulty_disk::FaultyDisk;
use crate::stores::{block_on, open, repeatable};

fn size(events: &[RecordedEvent]) -> usize {
    events.iter().map(RecordedEvent::page_bytes).sum()
}

#[test]
fn a_page_counts_the_header_that_is_written_with_each_event() {
    block_on(async {
        let opened = open(FaultyDisk::new(1), repeatable(1)).expect("it opens");
        let header = vec![("note".into(), "x".repeat(60_000).into())];
        for _ in 0..3 {
            let commit = (0..200)
                .fold(NewCommit::new("order", "o"), |commit, _| commit.event(NewEvent::new("placed", Data::empty())));
            opened.log.commit(NewCommit { header: header.clone(), ..commit }).await.expect("it is accepted");
        }
        let query = LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() };
        let page = opened.log.read(query).await.expect("it is read");
        let one = page.events[0].page_bytes();
        assert!((limits::PAGE_BYTES_MAX..limits::PAGE_BYTES_MAX + one).contains(&size(&page.events)));
        let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(Aggregate::new("order", "o")) };
        let found = opened.log.read_aggregate(query).await.expect("it is read");
        assert_eq!(found.commits.len(), 2, "a page of {} bytes each", size(&found.commits[0].events));
        opened.store.close().await;
    });
}
