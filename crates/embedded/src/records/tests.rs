//! Which index a plan uses. That a plan finds what it must is for the model and the suite.

use annals_core::bson::{Bson, DateTime};
use annals_core::order::Direction::{Ascending, Descending};
use annals_core::{Code, Condition, Index, Invalid, RecordQuery};

use super::catalog::{Catalog, KnownCollection};
use super::plan::{Ordered, Plan, plans, plans_of_count};

fn collection<I: Into<Index>>(indexes: impl IntoIterator<Item = I>) -> KnownCollection {
    let mut catalog = Catalog::default();
    catalog.add_collection("c");
    indexes.into_iter().for_each(|index| drop(catalog.add_index("c", index.into())));
    catalog.collection("c").expect("it was added").clone()
}

fn all_planned(collection: &KnownCollection, query: &RecordQuery) -> Vec<Plan> {
    query.validate().expect("the query is right");
    plans(collection, &query.condition, &query.sort).expect("it has a text index if it needs one")
}

fn only(mut plans: Vec<Plan>) -> Plan {
    let plan = plans.pop().expect("there is a plan");
    assert!(plans.is_empty(), "it is the only one");
    plan
}

fn planned(collection: &KnownCollection, query: RecordQuery) -> Plan {
    only(all_planned(collection, &query))
}

fn plan_of_count(collection: &KnownCollection, condition: &Condition) -> Result<Plan, Invalid> {
    plans_of_count(collection, condition).map(only)
}

/// The name of the index and whether nothing needs sorting.
fn used(collection: &KnownCollection, query: RecordQuery) -> (String, bool) {
    let plan = planned(collection, query);
    (plan.index.map_or("documents".to_owned(), |known| known.index.name().to_owned()), plan.ordered == Ordered::Wholly)
}

fn query(condition: Condition) -> RecordQuery {
    RecordQuery::new("c").matching(condition)
}

#[test]
fn the_index_that_narrows_most_is_used() {
    let both = Index::ordered([("a", Ascending), ("b", Descending)]);
    let of = collection([Index::on("a"), both, Index::on("c").unique()]);
    let (a, b) = (Condition::eq("a", 1), Condition::gt("b", 1));
    assert_eq!(used(&of, query(Condition::All)), ("documents".into(), true));
    assert_eq!(used(&of, query(a.clone())).0, "a_1");
    assert_eq!(used(&of, query(b.clone())).0, "documents");
    assert_eq!(used(&of, query(Condition::And(vec![Condition::And(vec![b.clone()]), a.clone()]))).0, "a_1_b_-1");
    assert_eq!(used(&of, query(Condition::and([a.clone(), b.clone(), Condition::eq("c", 1)]))).0, "c_1");
    assert_eq!(used(&of, query(Condition::and([a.clone(), Condition::eq("_id", 1)]))).0, "documents");
    assert_eq!(used(&of, query(Condition::or([a, b]))).0, "documents");
    assert_eq!(used(&of, query(Condition::ne("a", 1))).0, "documents");
    assert_eq!(used(&of, query(Condition::eq("a", Bson::Array(vec![])))).0, "documents");
    let plan = planned(&of, query(Condition::is_in("a", [3, 1, 3])));
    assert_eq!(plan.ranges.len(), 2);
}

#[test]
fn an_index_in_the_order_of_the_sort_spares_sorting() {
    let of = collection([Index::ordered([("a", Ascending), ("b", Descending)])]);
    let a = || query(Condition::eq("a", 1));
    let index = || "a_1_b_-1".to_owned();
    assert_eq!(used(&of, a().descending("b")), (index(), true));
    assert!(!planned(&of, a().descending("b")).descending);
    assert_eq!(used(&of, a().ascending("b")), (index(), true));
    assert!(planned(&of, a().ascending("b")).descending);
    assert_eq!(used(&of, a().ascending("a").descending("b")), (index(), true));
    assert_eq!(used(&of, query(Condition::All).ascending("a").descending("b")), (index(), true));
    assert_eq!(used(&of, a()), (index(), false));
    assert_eq!(used(&of, query(Condition::gt("b", 1)).descending("_id")), ("documents".into(), true));
}

#[test]
fn an_index_is_in_the_order_of_the_ids_where_all_its_fields_are_equal() {
    let of = collection([Index::ordered([("a", Ascending), ("b", Descending)])]);
    let both = || query(Condition::and([Condition::eq("a", 1), Condition::eq("b", 1)]));
    for (query, descending) in [
        (both(), true),
        (both().ascending("_id").descending("x"), true),
        (both().descending("_id"), false),
        (query(Condition::eq("a", 1)).descending("b").descending("_id"), false),
        (query(Condition::eq("a", 1)).ascending("b").ascending("_id").ascending("x"), true),
    ] {
        let plan = planned(&of, query.clone());
        assert_eq!((plan.ordered, plan.descending), (Ordered::Wholly, descending), "{query:?}");
        assert!(plan.index.is_some());
    }
    let against = query(Condition::eq("a", 1)).descending("b").ascending("_id");
    assert_eq!(planned(&of, against).ordered, Ordered::First { fields: 1, of_index: 2 });
    assert_eq!(planned(&of, query(Condition::eq("a", 1)).descending("_id")).ordered, Ordered::No);
    let with_id = collection([Index::ordered([("a", Ascending), ("_id", Descending)])]);
    assert_eq!(used(&with_id, query(Condition::All).ascending("a").descending("_id")), ("a_1__id_-1".into(), true));
}

#[test]
fn ranges_of_several_values_are_merged_in_the_order_of_the_sort() {
    let mut of = collection([Index::ordered([("a", Ascending), ("b", Descending)])]);
    let some = || Condition::is_in("a", ["x", "long", "y"]);
    let time = |millis| Bson::DateTime(DateTime::from_millis(millis));
    for descending in [false, true] {
        let sorted = |condition| {
            let query = query(condition);
            if descending { query.ascending("b") } else { query.descending("b") }
        };
        for condition in [some(), Condition::and([some(), Condition::gte("b", time(1)), Condition::lt("b", time(5))])] {
            let plan = planned(&of, sorted(condition));
            assert_eq!((plan.ordered, plan.descending), (Ordered::Wholly, descending));
            let lengths = plan.merged.expect("it is merged");
            let mut rests = plan.ranges.iter().zip(&lengths).map(|(range, length)| match &range.from {
                std::ops::Bound::Included(low) => &low[*length..],
                other => panic!("{other:?}"),
            });
            let first = rests.next().expect("there are three");
            assert!(rests.all(|rest| rest == first), "what follows the values is the same in all ranges");
            assert_eq!(lengths.len(), 3);
            assert!(lengths.iter().any(|length| *length != lengths[0]));
        }
    }
    // The order by `a` is not that of `b`, and counting needs none.
    for query in [query(some()).ascending("a").descending("b"), query(some()).descending("x"), query(some())] {
        let plan = planned(&of, query);
        assert!(plan.ordered == Ordered::No && plan.merged.is_none());
    }
    let of_a = collection([Index::on("a")]);
    assert!(planned(&of_a, query(some())).merged.is_some(), "by id");
    assert!(plan_of_count(&of_a, &some()).is_ok_and(|plan| plan.exact && plan.merged.is_none()));
    of.indexes[0].several_entries = true;
    assert!(planned(&of, query(some()).descending("b")).merged.is_none());
}

#[test]
fn entries_are_counted_where_each_is_of_another_record_that_matches() {
    let mut of = collection([Index::ordered([("a", Ascending), ("t", Descending)])]);
    let time = |millis| Bson::DateTime(DateTime::from_millis(millis));
    let (a, from, to) = (Condition::eq("a", "x"), Condition::gte("t", time(1)), Condition::lte("t", time(5)));
    let some = Condition::is_in("a", ["x", "y"]);
    for condition in [a.clone(), some.clone(), Condition::and([some, from.clone(), to]), Condition::All] {
        let plan = plan_of_count(&of, &condition).expect("there is one");
        assert!(plan.exact && plan.index.is_some(), "{condition:?}");
    }
    let with_a = |other| Condition::and([a.clone(), other]);
    for condition in [
        Condition::eq("a", Bson::Null),
        from.clone(),
        with_a(Condition::gt("t", time(1))),
        with_a(Condition::gte("t", 1)),
        with_a(Condition::eq("a", "y")),
        with_a(Condition::eq("b", 1)),
        Condition::or([a.clone(), from]),
    ] {
        assert!(!plan_of_count(&of, &condition).expect("there is one").exact, "{condition:?}");
    }
    // A record may have several entries.
    of.indexes[0].several_entries = true;
    assert!(!plan_of_count(&of, &a).expect("there is one").exact);
    assert!(plan_of_count(&of, &Condition::All).is_ok_and(|plan| plan.exact && plan.index.is_none()));
}

#[test]
fn an_index_that_may_lack_a_match_is_not_used() {
    let sparse = collection([Index::on("a").sparse()]);
    assert_eq!(used(&sparse, query(Condition::eq("a", 1))).0, "a_1");
    assert_eq!(used(&sparse, query(Condition::lt("a", 1))).0, "a_1");
    assert_eq!(used(&sparse, query(Condition::eq("a", Bson::Null))).0, "documents");
    assert_eq!(used(&sparse, query(Condition::is_in("a", [Bson::Null, 1.into()]))).0, "documents");
    assert_eq!(used(&sparse, query(Condition::All).ascending("a")).0, "documents");
    let partial = collection([Index::on("a").partial(Condition::and([Condition::gt("b", 1), Condition::exists("c")]))]);
    let (a, b, c) = (Condition::eq("a", 1), Condition::gt("b", 1), Condition::exists("c"));
    assert_eq!(used(&partial, query(Condition::and([a.clone(), b.clone(), c.clone()]))).0, "a_1");
    assert_eq!(used(&partial, query(Condition::and([a.clone(), b]))).0, "documents");
    assert_eq!(used(&partial, query(Condition::and([a, c, Condition::gt("b", 2)]))).0, "documents");
}

#[test]
fn a_partial_index_in_the_order_of_the_sort_is_read_before_a_span_that_must_be_sorted() {
    let open = Condition::is_true("open");
    let of_key = Index::ordered([("key", Ascending), ("n", Ascending)]).partial(open.clone());
    let of = collection([Index::on("at"), of_key]);
    let until = Condition::and([open.clone(), Condition::lte("at", 5)]);
    assert_eq!(used(&of, query(until.clone()).ascending("key").ascending("n")), ("key_1_n_1".into(), true));
    // Counting entries is counting records only where nothing else is asked.
    let counted = plan_of_count(&of, &open).expect("there is one");
    assert!(counted.exact && counted.narrow && counted.index.is_some_and(|it| it.index.partial().is_some()));
    assert!(!plan_of_count(&of, &until).expect("there is one").exact);
    let all = plan_of_count(&of, &Condition::All).expect("there is one");
    assert!(all.exact && all.index.is_some_and(|it| it.index.partial().is_none()));
}

#[test]
fn where_records_have_several_entries_ends_are_not_joined_and_order_is_not_theirs() {
    let range = || query(Condition::and([Condition::gt("a", 2), Condition::lt("a", 5)]));
    let mut of = collection([Index::on("a")]);
    let joined = planned(&of, range()).ranges;
    assert!(planned(&of, range().ascending("a")).ordered == Ordered::Wholly);
    of.indexes[0].several_entries = true;
    let open = planned(&of, range()).ranges;
    assert_eq!(joined[0].from, open[0].from);
    assert!(joined[0].to != open[0].to, "an element above 5 may be above 2 for one below 5");
    assert_eq!(planned(&of, range().ascending("a")).ordered, Ordered::No);
}

#[test]
fn an_index_in_the_order_of_the_first_fields_of_a_sort_spares_reading_the_rest() {
    let of = collection([Index::ordered([("a", Ascending), ("b", Descending), ("c", Ascending)])]);
    let first = |fields, of_index| Ordered::First { fields, of_index };
    let any = || query(Condition::All);
    let ordered = |query| planned(&of, query).ordered;
    // What is equal in `a` alone stands in the order of `b`, not of the ids.
    assert_eq!(ordered(any().ascending("a")), first(1, 1));
    assert_eq!(ordered(any().ascending("a").ascending("b")), first(1, 1));
    assert_eq!(ordered(any().descending("a").ascending("b").ascending("x")), first(2, 2));
    assert_eq!(ordered(any().ascending("x").ascending("a")), Ordered::No);
    assert_eq!(ordered(any().ascending("b")), Ordered::No);
    // A field that is the same in all can stand anywhere.
    let a = || query(Condition::eq("a", 1));
    assert_eq!(ordered(a().descending("b")), first(1, 2));
    assert_eq!(ordered(a().ascending("b").ascending("a")), first(2, 2));
    assert_eq!(ordered(a().ascending("a")), Ordered::No);
    assert!(planned(&of, a().ascending("b")).descending);
    assert_eq!(ordered(query(Condition::is_in("a", [1, 2])).descending("b")), Ordered::No);
}

#[test]
fn the_beginning_of_a_text_is_a_range_of_an_index() {
    for direction in [Ascending, Descending] {
        let of = collection([Index::ordered([("a", Ascending), ("b", direction)])]);
        let both = |b| query(Condition::and([Condition::eq("a", 1), b]));
        let plan = planned(&of, both(Condition::starts_with("b", "ab")));
        // Texts, and the expression that finds itself.
        assert_eq!((plan.index.is_some(), plan.ranges.len()), (true, 2));
        let query = both(Condition::starts_with("b", "ab"));
        let sorted = if direction == Ascending { query.ascending("b") } else { query.descending("b") };
        assert_eq!(planned(&of, sorted).ordered, Ordered::Wholly);
        let any_case = Condition::starts_with("b", annals_core::Fragment::new("ab").ignoring_case());
        assert_eq!(planned(&of, both(any_case)).ranges.len(), 1);
    }
}

/// The names of the indexes of all plans, and whether nothing needs sorting.
fn all_used(collection: &KnownCollection, query: RecordQuery) -> Vec<(String, bool)> {
    let name = |plan: &Plan| plan.index.as_ref().map_or("documents".to_owned(), |known| known.index.name().to_owned());
    let plans = all_planned(collection, &query);
    plans.iter().map(|plan| (name(plan), plan.ordered == Ordered::Wholly)).collect()
}

#[test]
fn words_are_looked_up_in_the_text_index_or_read_in_the_order_of_the_sort() {
    let of = collection([Index::from(Index::on("t").unique()), Index::on("a").into(), Index::on("b").into(), text()]);
    let words = || query(Condition::matching_text("B \"a b\" -c"));
    let with = |condition| query(Condition::And(vec![condition, Condition::matching_text("B")]));
    let due =
        |names: &[(&str, bool)]| names.iter().map(|(name, whole)| ((*name).to_owned(), *whole)).collect::<Vec<_>>();
    // The entries of a word are in the order of the ids.
    for by_id in [words(), words().ascending("_id"), words().descending("_id").ascending("a")] {
        assert_eq!(all_used(&of, by_id), due(&[("x_text", true)]));
    }
    assert!(planned(&of, words().descending("_id")).descending);
    assert_eq!(planned(&of, words()).ranges.len(), 2);
    assert_eq!(all_used(&of, words().ascending("a")), due(&[("x_text", false), ("a_1", true)]));
    assert_eq!(all_used(&of, words().ascending("x")), due(&[("x_text", false)]));
    // What else is asked for may be rarer.
    let (a, span) = (|| with(Condition::eq("a", 1)), || with(Condition::gt("a", 1)));
    assert_eq!(all_used(&of, a()), due(&[("x_text", true), ("a_1", true)]));
    assert_eq!(all_used(&of, span()), due(&[("a_1", false), ("x_text", true)]));
    assert_eq!(all_used(&of, a().ascending("x")), due(&[("x_text", false), ("a_1", false)]));
    assert_eq!(all_used(&of, a().ascending("b")), due(&[("x_text", false), ("a_1", false), ("b_1", true)]));
    assert_eq!(all_used(&of, with(Condition::eq("t", "a")).ascending("a")), due(&[("t_1", false)]));
    assert_eq!(all_used(&of, with(Condition::eq("_id", 1)).ascending("a")), due(&[("documents", false)]));
    // Nothing else looks up words.
    assert_eq!(used(&of, query(Condition::eq("x", "a"))).0, "documents");
    let without = collection([Index::on("t")]);
    assert!(plans(&without, &words().condition, &[]).is_err_and(|error| error.code == Code::NoTextIndex));
}

#[test]
fn any_of_several_parts_is_looked_up_by_all_of_them_or_read_in_the_order_of_the_sort_or_wholly() {
    let of = collection([Index::from(Index::on("a")), Index::on("b").into(), Index::on("n").into(), text()]);
    let (a, b) = (|| Condition::eq("a", 1), || Condition::eq("b", 1));
    let any = || query(Condition::or([a(), Condition::and([b(), Condition::gt("x", 1)])]));
    let united = |query: RecordQuery| all_planned(&of, &query).iter().map(|plan| plan.united.len()).collect::<Vec<_>>();
    assert_eq!(all_used(&of, any().descending("n")), [("b_1".to_owned(), false), ("n_1".to_owned(), true)]);
    assert_eq!(united(any().descending("n")), [1, 0]);
    assert_eq!(all_used(&of, any().descending("x")), [("b_1".to_owned(), false), ("documents".to_owned(), false)]);
    assert_eq!(united(any().descending("x")), [1, 0]);
    assert_eq!(united(query(Condition::or([a(), b(), Condition::eq("_id", 1)]))), [2, 0]);
    assert_eq!(united(query(Condition::or([a(), Condition::eq("x", 1)]))), [0], "all records are read for one of them");
    assert_eq!(united(query(Condition::and([a(), Condition::or([a(), b()])]))), [0], "the first part is enough");
    let words = Condition::and([Condition::matching_text("a"), Condition::or([a(), b()])]);
    assert_eq!(united(query(words).ascending("n")), [0, 1, 0]);
    assert!(plans_of_count(&of, &any().condition).is_ok_and(|plans| plans.iter().all(|plan| !plan.exact)));
}

#[test]
fn entries_of_words_are_counted_where_one_of_them_is_enough() {
    let of = collection([text()]);
    let exact = |condition: Condition| plan_of_count(&of, &condition).expect("there is one").exact;
    let words = |search: &str| Condition::matching_text(search);
    assert!(exact(words("a")) && exact(words("a b-c")) && exact(Condition::And(vec![Condition::All, words("a")])));
    assert!(exact(words("")), "it finds nothing");
    let long = "a".repeat(300);
    for search in ["\"a b\"", "a -b", "a -\"b c\"", long.as_str()] {
        assert!(!exact(words(search)), "{search}");
    }
    assert!(!exact(Condition::And(vec![words("a"), Condition::eq("x", 1)])));
}

fn text() -> Index {
    Index::text(["x"]).into()
}
