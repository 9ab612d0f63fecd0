//! An order: placed, paid, shipped; or cancelled before that.

use annals::{AggregateType, Effect, NewEvent, Upcasters};
use serde::{Deserialize, Serialize};

/// The state of an order: what its events have made of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// How far it is.
    pub status: Status,
    /// What was ordered.
    pub lines: Vec<Line>,
    /// What was paid so far.
    pub paid_cents: u64,
}

/// How far an order is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// There is none yet.
    #[default]
    New,
    /// It waits to be paid.
    Placed,
    /// It waits to be shipped.
    Paid,
    /// It is on its way.
    Shipped,
    /// It is given up.
    Cancelled,
}

/// A product, how many of it, and what one costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What is ordered.
    pub product: String,
    /// How many.
    pub count: u32,
    /// What one costs.
    pub price_cents: u64,
}

/// What can happen to an order. The variants are the event types `order_placed` and so on, their fields are the data.
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

    /// A cancelled order takes no commands any more.
    fn effect(event: &OrderEvent) -> Option<Effect> {
        matches!(event, OrderEvent::OrderCancelled { .. }).then_some(Effect::Deleted)
    }

    /// Filtered reads of the log find orders by their products.
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

/// The commands: each says what follows from it, or why it is refused.
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

    /// Pays it, and ships it at once where a carrier waits.
    ///
    /// # Errors
    /// When it is not placed, or the amount is not what is due.
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

    /// Ships it.
    ///
    /// # Errors
    /// When it is not paid.
    pub fn ship(&self, carrier: &str) -> Result<Vec<OrderEvent>, OrderError> {
        match self.status {
            Status::Paid => Ok(vec![OrderEvent::OrderShipped { carrier: carrier.to_owned() }]),
            status => Err(OrderError::NotPaid(status)),
        }
    }

    /// Gives it up.
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

    /// What is to be paid.
    pub fn due_cents(&self) -> u64 {
        let cents = |line: &Line| u64::from(line.count).saturating_mul(line.price_cents);
        self.lines.iter().map(cents).fold(0, u64::saturating_add)
    }
}
