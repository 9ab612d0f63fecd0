//! Windows of time on days on which the clocks change: the mongod says with its own rules of zones when days, weeks and months begin, and
//! both stores find what lies in between.

use std::sync::Arc;

use annals_core::bson::{Bson, Document, doc};
use annals_core::{Clock, Condition, Days, TimeOfDay, Timestamp, Window};

use super::pair::Pair;

/// Zones, and moments around which their clocks change: forward, back, at midnight, by half an hour, by a whole day.
const CHANGES: [(&str, &[&str]); 10] = [
    ("UTC", &["2021-03-28T12:00:00Z", "2020-02-29T23:59:59.999Z"]),
    (
        "Europe/Berlin",
        &["2021-03-28T00:59:59.999Z", "2021-03-28T01:00:00Z", "2021-10-31T00:30:00Z", "2021-10-31T01:30:00Z"],
    ),
    (
        "America/New_York",
        &["2021-03-14T06:59:59Z", "2021-03-14T07:00:00Z", "2021-11-07T05:30:00Z", "2021-11-07T06:30:00Z"],
    ),
    // Days that begin at one o'clock.
    (
        "America/Sao_Paulo",
        &["2018-11-04T02:59:59Z", "2018-11-04T03:00:00Z", "2018-11-05T03:00:00Z", "2018-11-01T15:00:00Z"],
    ),
    ("Asia/Beirut", &["2021-03-27T21:59:59Z", "2021-03-27T22:00:00Z", "2021-03-28T12:00:00Z"]),
    // Half an hour.
    ("Australia/Lord_Howe", &["2021-04-03T14:59:59Z", "2021-04-03T15:00:00Z", "2021-10-02T15:30:00Z"]),
    ("Asia/Kathmandu", &["2021-05-01T18:14:59Z", "2021-05-01T18:15:00Z"]),
    ("Pacific/Auckland", &["2021-04-03T13:59:59Z", "2021-04-03T14:00:00Z", "2021-09-25T14:00:00Z"]),
    ("Africa/Casablanca", &["2021-04-11T01:59:59Z", "2021-05-16T02:00:00Z"]),
    ("Asia/Tehran", &["2021-03-21T20:29:59Z", "2021-03-21T20:30:00Z", "2021-09-21T19:30:00Z"]),
];

fn windows() -> Vec<(Days, Bounds)> {
    let time = |text: &str| TimeOfDay::parse(text).expect("a time");
    let days = |first, behind| Bounds { unit: "day", first: Some(first), behind };
    vec![
        (Days::Today, days(0, 1)),
        (Days::Tomorrow, days(1, 2)),
        (Days::ThisWeek, Bounds { unit: "week", first: Some(0), behind: 1 }),
        (Days::NextWeek, Bounds { unit: "week", first: Some(1), behind: 2 }),
        (Days::LastWeek, Bounds { unit: "week", first: Some(-1), behind: 0 }),
        (Days::ThisMonth, Bounds { unit: "month", first: Some(0), behind: 1 }),
        (Days::LastMonth, Bounds { unit: "month", first: Some(-1), behind: 0 }),
        (Days::Recent(1), days(0, 1)),
        (Days::Recent(10), days(-9, 1)),
        (Days::Earlier(1), Bounds { unit: "day", first: None, behind: 0 }),
        (Days::Earlier(10), Bounds { unit: "day", first: None, behind: -9 }),
        (Days::BeforeToday(time("00:00")), Bounds { unit: "day", first: None, behind: 0 }),
    ]
}

/// From the beginning of one unit to before that of another, counted from the one that now is in; without a first one from ever.
struct Bounds {
    unit: &'static str,
    first: Option<i32>,
    behind: i32,
}

impl Bounds {
    /// When the unit that many after now begins, for the mongod to say.
    fn beginning(&self, after: i32) -> Document {
        let truncated = |date: Bson| {
            doc! { "$dateTrunc": { "date": date, "unit": self.unit, "timezone": "$zone", "startOfWeek": "monday" } }
        };
        // Noon of a day is on that day whatever the clocks do.
        let noon = doc! { "$dateAdd": { "startDate": truncated("$now".into()), "unit": "hour", "amount": 12, "timezone": "$zone" } };
        truncated(
            doc! { "$dateAdd": { "startDate": noon, "unit": self.unit, "amount": after, "timezone": "$zone" } }.into(),
        )
    }
}

/// What the mongod says: for every window when it begins, if it does, and when what is behind it begins.
async fn said(pair: &Pair, zone: &str, now: i64) -> Vec<(Option<i64>, i64)> {
    let now = annals_core::bson::DateTime::from_millis(now);
    let mut asked = doc! {};
    for (n, (_, bounds)) in windows().iter().enumerate() {
        if let Some(first) = bounds.first {
            asked.insert(format!("first-{n}"), bounds.beginning(first));
        }
        asked.insert(format!("behind-{n}"), bounds.beginning(bounds.behind));
    }
    let stages = [doc! { "$documents": [{ "zone": zone, "now": now }] }, doc! { "$project": asked }];
    let mut answer = pair.databases.database().await.aggregate(stages).await.expect("the server says");
    assert!(answer.advance().await.expect("the server says"));
    let said: Document = answer.deserialize_current().expect("a document");
    let time = |name: String| said.get_datetime(name).ok().map(|time| time.timestamp_millis());
    let each = 0..windows().len();
    each.map(|n| (time(format!("first-{n}")), time(format!("behind-{n}")).expect("a time"))).collect()
}

#[tokio::test]
async fn windows_hold_what_mongodb_says_lies_in_their_days() {
    let pair = Arc::new(Pair::open().await);
    let mut loaded = 0;
    for (zone, moments) in CHANGES {
        for moment in moments {
            let now = Timestamp::parse(moment).expect("a time").as_millis();
            pair.clock.advance_millis(now - pair.clock.now().as_millis());
            let bounds = said(&pair, zone, now).await;
            let ends =
                bounds.iter().flat_map(|(first, behind)| first.iter().chain([behind]).copied().collect::<Vec<_>>());
            let mut times: Vec<i64> = ends.flat_map(|end| [end - 1, end, end + 3_600_000]).chain([now]).collect();
            times.sort_unstable();
            times.dedup();
            let documents: Vec<_> = times.iter().map(|time| doc! { "_id": *time, "t": *time }).collect();
            loaded += 1;
            let both = pair.load(&format!("days-{loaded}"), &documents, &[]).await.expect("loaded");
            for ((days, _), (first, behind)) in windows().into_iter().zip(bounds) {
                let condition = Condition::within("t", Window::from(days).in_zone(zone));
                let found = both.ids(condition).await.unwrap_or_else(|why| panic!("{zone} {moment} {days:?} {why}"));
                let within = |time: &&i64| **time < behind && first.is_none_or(|first| **time >= first);
                let due: Vec<_> = times.iter().filter(within).map(|time| Bson::Int64(*time)).collect();
                assert_eq!(found, due, "{days:?} at {moment} in {zone}, from {first:?} to before {behind}");
            }
        }
    }
    Arc::into_inner(pair).expect("nobody asks any more").close().await;
}
