/* write.h - between the writer of records and the encoder of Examples. */
#ifndef WF_DATA_RECORD_WRITE_H
#define WF_DATA_RECORD_WRITE_H

#include "data/data.h"
#include "weft/data_record.h"

/* An empty buffer of the writer, kept from record to record. */
struct wf_buf *wf_record_writer_room(weft_record_writer *w);

#endif
