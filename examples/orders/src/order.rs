//! An order: placed, paid, shipped; or cancelled before it ships.

use annals::{AggregateType, Effect, NewEvent, Upcasters};
use serde::{Deserialize, Serialize};

/// The state of an order: the result of its events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its status.
    pub status: Status,
    /// The ordered products.
    pub lines: Vec<Line>,
    /// The amount paid so far, in cents.
    pub paid_cents: u64,
}

/// The status of an order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The order does not exist yet.
    #[default]
    New,
    /// The order waits for payment.
    Placed,
    /// The order is paid and waits for shipping.
    Paid,
    /// The order has been shipped.
    Shipped,
    /// The order was cancelled.
    Cancelled,
}

/// A product with its quantity and unit price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The name of the product.
    pub product: String,
    /// The quantity.
    pub count: u32,
    /// The price of one unit, in cents.
    pub price_cents: u64,
}

/// The events of an order. The variants are the event types, `order_placed` and so on, and their fields are the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they say what happened")]
pub enum OrderEvent {
    OrderPlaced { lines: Vec<Line> },
    OrderPaid { cents: u64 },
    OrderShipped { carrier: String },
    OrderCancelled { reason: String },
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the sentences say it")]
pub enum OrderError {
    #[error("the order is already {0:?}")]
    Already(Status),
    #[error("an order needs at least one product")]
    Empty,
    #[error("the order is {0:?}; it must be placed before it is paid")]
    NotPlaced(Status),
    #[error("{paid} cents were paid, and {due} are due")]
    WrongAmount { paid: u64, due: u64 },
    #[error("the order is {0:?}; it must be paid before it is shipped")]
    NotPaid(Status),
}

impl AggregateType for Order {
    const NAME: &'static str = "order";
    type Event = OrderEvent;

    fn evolve(&mut self, event: OrderEvent) {
        match event {
            OrderEvent::OrderPlaced { lines } => {
                self.lines = lines;
                self.status = Status::Placed;
            }
            OrderEvent::OrderPaid { cents } => {
                self.paid_cents += cents;
                self.status = Status::Paid;
            }
            OrderEvent::OrderShipped { .. } => self.status = Status::Shipped,
            OrderEvent::OrderCancelled { .. } => self.status = Status::Cancelled,
        }
    }

    /// A cancelled order accepts no more commands.
    fn effect(event: &OrderEvent) -> Option<Effect> {
        matches!(event, OrderEvent::OrderCancelled { .. }).then_some(Effect::Deleted)
    }

    /// Tags let filtered reads of the log find orders by their products.
    fn annotate(event: &OrderEvent, new: NewEvent) -> NewEvent {
        match event {
            OrderEvent::OrderPlaced { lines } => {
                lines.iter().fold(new, |new, line| new.tag(format!("product:{}", line.product)))
            }
            _ => new,
        }
    }

    /// The first version of this program recorded amounts in whole euros.
    fn upcasters() -> Upcasters {
        Upcasters::new().upcast("order_paid", 1, |data| {
            if let Some(euros) = data.remove("euros").and_then(|euros| euros.as_i64()) {
                data.insert("cents", euros * 100);
            }
        })
    }
}

/// The commands. Each returns the events that follow, or why it is refused.
impl Order {
    /// Places the order.
    ///
    /// # Errors
    /// When it was placed before, or is empty.
    pub fn place(&self, lines: &[Line]) -> Result<Vec<OrderEvent>, OrderError> {
        match self.status {
            Status::New if lines.is_empty() => Err(OrderError::Empty),
            Status::New => Ok(vec![OrderEvent::OrderPlaced { lines: lines.to_vec() }]),
            status => Err(OrderError::Already(status)),
        }
    }

    /// Pays the order. If a carrier is given, also ships it.
    ///
    /// # Errors
    /// When it is not placed, or the amount is not the one due.
    pub fn pay(&self, paid: u64, carrier: Option<&str>) -> Result<Vec<OrderEvent>, OrderError> {
        let due = self.due_cents();
        match self.status {
            Status::Placed if paid == due => {
                let shipped = carrier.map(|carrier| OrderEvent::OrderShipped { carrier: carrier.to_owned() });
                Ok([OrderEvent::OrderPaid { cents: paid }].into_iter().chain(shipped).collect())
            }
            Status::Placed => Err(OrderError::WrongAmount { paid, due }),
            status => Err(OrderError::NotPlaced(status)),
        }
    }

    /// Ships the order.
    ///
    /// # Errors
    /// When it is not paid.
    pub fn ship(&self, carrier: &str) -> Result<Vec<OrderEvent>, OrderError> {
        match self.status {
            Status::Paid => Ok(vec![OrderEvent::OrderShipped { carrier: carrier.to_owned() }]),
            status => Err(OrderError::NotPaid(status)),
        }
    }

    /// Cancels the order.
    ///
    /// # Errors
    /// When it is shipped.
    pub fn cancel(&self, reason: &str) -> Result<Option<OrderEvent>, OrderError> {
        match self.status {
            Status::New => Ok(None),
            Status::Placed | Status::Paid => Ok(Some(OrderEvent::OrderCancelled { reason: reason.to_owned() })),
            status => Err(OrderError::Already(status)),
        }
    }

    /// Returns the amount due, in cents.
    pub fn due_cents(&self) -> u64 {
        let cents = |line: &Line| u64::from(line.count).saturating_mul(line.price_cents);
        self.lines.iter().map(cents).fold(0, u64::saturating_add)
    }
}
