// Quasar's table with rows of rules. The component of a row is made once. A slot of NiceGUI's makes it at each drawing:
// then every row is built anew whenever anything on the page changes, and open menus, typed text and focus are lost.
export default {
  template: `
    <q-table ref="qRef">
      <template v-slot:body="props"><component :is="row" :key="props.row.id" :props="props"></component></template>
      <template v-slot:no-data="props"><div class="empty">{{ props.message }}</div></template>
    </q-table>
  `,
  props: { body: String },
  created() {
    this.row = { props: { props: Object }, template: this.body };
  },
};
