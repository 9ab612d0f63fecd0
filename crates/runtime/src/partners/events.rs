//! Queries of events.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::bson::oid::ObjectId;
use annals_core::partners::{
    Counts, DELIVERIES, DeliveryRecord, Ending, EventDirection, EventStatus, EventsQuery, PARTNER_EVENTS, PartnerError,
    PartnerEventPage, PartnerEventRecord, PartnerEventView, PartnerStatistics,
};
use annals_core::{Condition, Cursor, TypedRecords, limits};

use super::{TenantPartners, absent, date};

impl TenantPartners {
    pub(super) fn typed_events(&self) -> TypedRecords<PartnerEventRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    fn typed_deliveries(&self) -> TypedRecords<DeliveryRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    /// Returns the record of an event, and its delivery unless other software wrote the record.
    pub(super) async fn find_event(
        &self,
        id: &str,
    ) -> Result<(PartnerEventRecord, Option<DeliveryRecord>), PartnerError> {
        self.open()?;
        let unknown = || PartnerError::UnknownEvent(id.to_owned());
        let key = ObjectId::parse_str(id).map_err(|_| unknown())?;
        let event = absent(self.typed_events().get(key).await)?.ok_or_else(unknown)?.value;
        let query = TypedRecords::<DeliveryRecord>::query().matching(Condition::eq("event", key)).limit(1);
        let (found, _) = absent(self.typed_deliveries().find(query).await)?;
        Ok((event, found.into_iter().next().map(|found| found.value)))
    }

    /// Checks that there is such a partner, or an event of it: the events of a deleted partner stay, and some may need a decision.
    async fn has_or_had(&self, partner: &str) -> Result<(), PartnerError> {
        match self.definition(partner).await {
            Err(PartnerError::Unknown(name)) => {
                let of_partner = condition(partner, &EventsQuery::default());
                match absent(self.records.count_up_to(PARTNER_EVENTS, &of_partner, 1).await)? {
                    0 => Err(PartnerError::Unknown(name)),
                    _ => Ok(()),
                }
            }
            known => known.map(drop),
        }
    }

    pub(super) async fn list_events(
        &self,
        partner: &str,
        query: EventsQuery,
    ) -> Result<PartnerEventPage, PartnerError> {
        self.open()?;
        self.has_or_had(partner).await?;
        if query.due || query.ended.is_some() {
            return self.list_by_delivery(partner, query).await;
        }
        let mut find = TypedRecords::<PartnerEventRecord>::query()
            .matching(condition(partner, &query))
            .descending("created")
            .limit(query.limit.clamp(1, limits::PAGE_MAX));
        if let Some(cursor) = query.cursor {
            find = find.after(Cursor::new(cursor));
        }
        let mut unreadable = 0;
        let (found, next) = absent(self.typed_events().find_readable(find, |_| unreadable += 1).await)?;
        if unreadable > 0 {
            tracing::warn!(partner, unreadable, "records of partner_events do not match the layout and are not listed");
        }
        let events: Vec<_> = found.into_iter().map(|found| found.value).collect();
        let ids: Vec<Bson> = events.iter().map(|event| event.id.into()).collect();
        let wanted =
            TypedRecords::<DeliveryRecord>::query().matching(Condition::is_in("event", ids)).limit(limits::PAGE_MAX);
        let (deliveries, _) = absent(self.typed_deliveries().find(wanted).await)?;
        let mut deliveries: HashMap<ObjectId, DeliveryRecord> =
            deliveries.into_iter().map(|found| (found.value.event, found.value)).collect();
        let view = |event: PartnerEventRecord| {
            let delivery = deliveries.remove(&event.id);
            PartnerEventView::of(event, delivery)
        };
        let (items, cursor) = (events.into_iter().map(view).collect(), next.map(|it| it.to_string()));
        Ok(PartnerEventPage { items, unreadable, cursor })
    }

    /// Lists the events that are due, the longest due first, or those that ended in some way.
    async fn list_by_delivery(&self, partner: &str, query: EventsQuery) -> Result<PartnerEventPage, PartnerError> {
        let lanes: Vec<Bson> = EventDirection::ALL
            .iter()
            .filter(|direction| query.direction.is_none_or(|wanted| wanted == **direction))
            .map(|direction| DeliveryRecord::lane_of(*direction, partner).into())
            .collect();
        let mut conditions = vec![Condition::is_in("lane", lanes)];
        if query.due {
            conditions.push(Condition::lte("due", date(self.now())));
            conditions.push(Condition::eq("open", true));
        }
        conditions.extend(query.ended.map(|ended| Condition::eq("ended", ended.as_str())));
        let mut find = TypedRecords::<DeliveryRecord>::query()
            .matching(Condition::and(conditions))
            .ascending(if query.due { "due" } else { "order" })
            .limit(query.limit.clamp(1, limits::PAGE_MAX));
        if let Some(cursor) = &query.cursor {
            find = find.after(Cursor::new(cursor));
        }
        let (deliveries, next) = absent(self.typed_deliveries().find(find).await)?;
        let ids: Vec<Bson> = deliveries.iter().map(|found| found.value.event.into()).collect();
        let wanted = Condition::and([condition(partner, &query), Condition::is_in("_id", ids)]);
        let wanted = TypedRecords::<PartnerEventRecord>::query().matching(wanted).limit(limits::PAGE_MAX);
        let mut unreadable = 0;
        let (events, _) = absent(self.typed_events().find_readable(wanted, |_| unreadable += 1).await)?;
        let mut events: HashMap<ObjectId, PartnerEventRecord> =
            events.into_iter().map(|found| (found.value.id, found.value)).collect();
        let items = deliveries.into_iter().filter_map(|delivery| {
            let delivery = delivery.value;
            Some(PartnerEventView::of(events.remove(&delivery.event)?, Some(delivery)))
        });
        Ok(PartnerEventPage { items: items.collect(), unreadable, cursor: next.map(|it| it.to_string()) })
    }

    pub(super) async fn count_events(&self, partner: &str) -> Result<PartnerStatistics, PartnerError> {
        self.open()?;
        self.has_or_had(partner).await?;
        let received = self.counts(partner, EventDirection::In).await?;
        let out = self.counts(partner, EventDirection::Out).await?;
        Ok(PartnerStatistics::of(partner, received, out))
    }

    async fn counts(&self, partner: &str, direction: EventDirection) -> Result<Counts, PartnerError> {
        let of_status = async |status| {
            let query = EventsQuery { direction: Some(direction), status: Some(status), ..EventsQuery::default() };
            absent(self.records.count(PARTNER_EVENTS, &condition(partner, &query)).await)
        };
        let lane = DeliveryRecord::lane_of(direction, partner);
        let ended = async |ending: Ending| {
            let wanted =
                Condition::and([Condition::eq("lane", lane.as_str()), Condition::eq("ended", ending.as_str())]);
            absent(self.records.count(DELIVERIES, &wanted).await)
        };
        Ok(Counts {
            pending: of_status(EventStatus::Pending).await?,
            processing: of_status(EventStatus::Processing).await?,
            success: of_status(EventStatus::Success).await?,
            failed: of_status(EventStatus::Failed).await?,
            exhausted: ended(Ending::Exhausted).await?,
            refused: ended(Ending::Refused).await?,
            cancelled: ended(Ending::Cancelled).await?,
        })
    }
}

/// Returns the condition for the records of a query.
fn condition(partner: &str, query: &EventsQuery) -> Condition {
    let text = |path: &str, value: &Option<String>| value.as_ref().map(|value| Condition::eq(path, value.as_str()));
    let mut all = vec![Condition::eq("entity_metadata.partnerId", partner)];
    all.extend(query.direction.map(|direction| Condition::eq("event_direction", direction.as_str())));
    all.extend(query.status.map(|status| Condition::eq("event_status", status.as_str())));
    all.extend(text("event_type", &query.event_type));
    all.extend(text("entity_metadata.entity_id", &query.entity_id));
    all.extend(text("entity_metadata.entity_type", &query.entity_type));
    all.extend(query.day.map(|day| Condition::eq("event_day_id", day)));
    Condition::and(all)
}
