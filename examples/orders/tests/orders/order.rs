//! What an order does, without a store: given what happened, when a command comes, then this follows.

use annals::testing::{Given, given};
use annals_example_orders::{Line, Order, OrderError, OrderEvent, Status};
use serde_json::json;

fn lines() -> Vec<Line> {
    vec![Line { product: "tea".to_owned(), count: 2, price_cents: 350 }]
}

fn placed() -> OrderEvent {
    OrderEvent::OrderPlaced { lines: lines() }
}

fn paid() -> OrderEvent {
    OrderEvent::OrderPaid { cents: 700 }
}

fn shipped() -> OrderEvent {
    OrderEvent::OrderShipped { carrier: "bike".to_owned() }
}

fn cancelled() -> OrderEvent {
    OrderEvent::OrderCancelled { reason: "too late".to_owned() }
}

fn new_order() -> Given<Order> {
    given([])
}

#[test]
fn an_order_is_placed_paid_and_shipped() {
    new_order()
        .when(|order| order.place(&lines()))
        .then([placed()])
        .when(|order| order.pay(700, None))
        .then([paid()])
        .when(|order| order.ship("bike"))
        .then([shipped()])
        .check(|order| assert_eq!((order.status, order.paid_cents), (Status::Shipped, 700)));
}

#[test]
fn one_that_is_paid_while_a_carrier_waits_is_shipped_at_once() {
    given::<Order>([placed()]).when(|order| order.pay(700, Some("bike"))).then([paid(), shipped()]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    new_order().when(|order| order.place(&[])).then_refused(OrderError::Empty);
    new_order().when(|order| order.pay(700, None)).then_refused(OrderError::NotPlaced(Status::New));
    let order = given::<Order>([placed()]);
    order.clone().when(|order| order.place(&lines())).then_refused(OrderError::Already(Status::Placed));
    order.clone().when(|order| order.pay(1, None)).then_refused(OrderError::WrongAmount { paid: 1, due: 700 });
    order.when(|order| order.ship("bike")).then_refused(OrderError::NotPaid(Status::Placed));
    given::<Order>([placed(), paid(), shipped()])
        .when(|order| order.cancel("too late"))
        .then_refused(OrderError::Already(Status::Shipped));
}

#[test]
fn a_cancelled_order_is_deleted() {
    given::<Order>([placed()])
        .when(|order| order.cancel("too late"))
        .then([cancelled()])
        .check(|order| assert!(order.info.deleted));
    new_order().when(|order| order.cancel("too late")).then_nothing();
}

#[test]
fn amounts_that_were_recorded_in_euros_are_read_as_cents() {
    new_order()
        .event(placed())
        .recorded("order_paid", 1, json!({ "euros": 7 }))
        .check(|order| assert_eq!((order.status, order.paid_cents), (Status::Paid, 700)));
}
